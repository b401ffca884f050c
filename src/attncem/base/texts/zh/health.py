"""Health of a training: what each warning means, and what to do."""

from __future__ import annotations

HEALTH: dict[str, str] = {
    "health.attention.meaning": "注意力塌缩：惩罚项几乎只落在一类中的个别样本上",
    "health.attention.advice": "用 surrogate.learn=worst_case 或 fit 训练其权重，或让每批次中每类有更多样本",
    "health.slots.meaning": "槽塌缩：一个槽占有了一类的全部样本，等于没有划分",
    "health.slots.advice": "使用 surrogate.learn=fit，或减少 surrogate.num_slots",
    "health.gates_saturated.meaning": "门控饱和：大多数门全开或全关，不再学习",
    "health.gates_saturated.advice": (
        "用 surrogate.learn=worst_case 或 fit 冻结门控，或设 surrogate.dimension_gate=false"
    ),
    "health.gates_closed.meaning": "有门已关闭：惩罚项几乎传不到编码器",
    "health.gates_closed.advice": "用 surrogate.learn=worst_case 或 fit 冻结门控，或关掉这个门",
    "health.gates_hide.meaning": "信噪比门掩盖了离散程度：均值远大于离散程度的维度没有计入惩罚项",
    "health.gates_hide.advice": "只把 rob_loss 看作离散程度的一部分；或设 surrogate.snr_gate=false",
    "health.latched.meaning": "惩罚项锁死：在一轮的几乎所有批次、几乎所有类别中关断，而这些类别并不紧凑",
    "health.latched.advice": (
        "设 surrogate.early_shut_off=false，提高其阈值，或减小 surrogate.early_shut_steps；"
        "没有提前关断时，不要相信 rob_loss"
    ),
    "health.blind.meaning": "代理损失失灵：各类实有的离散程度，它几乎没有报告",
    "health.blind.advice": (
        "不要把 rob_loss 当作隐私；使用 surrogate.learn=worst_case 或 fit，或不带自身权重的代理损失"
    ),
    "health.skipped.meaning": "样本被跳过：它们的类别在批次中样本太少",
    "health.skipped.advice": "让每批次中每类有更多样本（training.batch_size）",
    "health.few_samples.meaning": "样本太少：由这么少样本得到的方差取对数，会低于真实分布方差的对数",
    "health.few_samples.advice": (
        "让每批次中每类有更多样本（training.batch_size、training.batches.samples_per_class），或使用 surrogate.memory；"
        "对 kmeans 和 gmm 可减少 surrogate.num_clusters"
    ),
    "health.singular.meaning": "协方差奇异：多数分量的样本数不超过维数，惩罚项因此接近 0",
    "health.singular.advice": (
        "使用 surrogate.covariance=diagonal、更小的 surrogate.pca_dim 或更少的 surrogate.num_clusters"
    ),
    "health.normalised_away.meaning": "LayerNorm 掩盖了离散程度：大部分离散是所有维度一起平移或缩放，惩罚项看不到",
    "health.normalised_away.advice": "不要把 rob_loss 当作隐私；使用 surrogate.variance_space=raw",
    "health.projected_away.meaning": "投影掩盖了离散程度：大部分离散在主方向之外，没有受到惩罚",
    "health.projected_away.advice": "增大 surrogate.pca_dim，或不用它",
    "health.dominates.meaning": "惩罚项占主导：它对编码器的推动远大于任务本身",
    "health.dominates.advice": (
        "减小 training.penalty_weight，或用 training.penalty_schedule.name=linear_ramp 让它逐渐增大"
    ),
    "health.idle.meaning": "惩罚项无效：几乎没有它的梯度到达编码器",
    "health.idle.advice": "增大 training.penalty_weight，或检查代理损失的门控与下限",
    "health.useless.meaning": "模型接近随机水平：区分类别的能力几乎不比猜测强",
    "health.useless.advice": (
        "先训练数百步再加惩罚项（training.warmup_epochs），减小 training.penalty_weight，或用 "
        "training.penalty_schedule.name=linear_ramp 让它逐渐增大"
    ),
    "health.not_finite.meaning": "出现非有限数：训练已停止",
    "health.not_finite.advice": (
        "见 failure.json；减小 training.optimizer.lr 或 training.penalty_weight，或使用 training.precision=32-true"
    ),
    "health.span": "第 {begins:.3g} 轮{until}：{said}。处理办法：{advice}",
    "health.until.on": "起",
    "health.until.end": "至第 {epoch:.3g} 轮",
    "health.over": "{cause}：已结束",
    "health.target_reached": "已达到目标",
    "health.told": "{what}（{known}）",
    "health.limited": "{number}，界限 {limit:g}",
    "health.training": "警告：{run}，第 {epoch:.3g} 轮：{said}",
    "health.warning.above": "高于 {limit:g} 时警告",
    "health.warning.below": "低于 {limit:g} 时警告",
}
