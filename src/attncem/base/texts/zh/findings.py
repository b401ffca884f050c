"""Findings: what a person should know about a result, by code."""

from __future__ import annotations

FINDINGS: dict[str, str] = {
    "finding.not_converged": "{epochs:g} 轮后仍未收敛：预算最后一次加倍仍带来 {gain:.1f} % 的改进",
    "finding.never_doubled": "{epochs:g} 轮后仍未收敛：没有尝试过预算加倍",
    "finding.budget_diverged": "{epochs:g} 轮后仍未收敛：{tried:g} 轮时发散",
    "finding.more_images_help": ("自有图像为 {images} 张时，再加倍仍能使误差下降 {gain:.1f} %：真实泄露可能更大"),
    "finding.more_width_helps": "宽度为 {width} 时，再加倍仍能使误差下降 {gain:.1f} %：真实泄露可能更大",
    "finding.steps_not_enough": (
        "{steps} 步后仍未收敛（全变分 {smoothness:g}，牵引 {pull:g}）：最后一次加倍仍带来 {gain:.1f} % 的改进"
    ),
    "finding.steps_never_doubled": ("{steps} 步后仍未收敛（全变分 {smoothness:g}，牵引 {pull:g}）：没有尝试过加倍"),
    "finding.seeds_left": (
        "{total:,} 个种子中尝试了 {tried:,} 个：其余种子对应的噪声仍在；把全部种子试完的人就能去除噪声"
    ),
    "finding.unguided": "没有服务器端网络把替代客户端与真实客户端联系起来：结果可能是镜像或旋转的，甚至不如盲猜",
    "finding.prior_not_converged": "{steps} 步后仍未收敛：步数加倍仍有改进，或没有尝试加倍",
    "finding.loses_to": "不如“{other}”：训练不足",
    "finding.depends_on_batch": (
        "去掉同一批次的其他图像后结果不同（它们使结果移动 {moved:.2g}，而 MSE 为 {error:.2g}）：这一行没有意义"
    ),
    "finding.other_aim": "它按 {loss} 训练，同类中又没有按 MSE（攻击排名的依据）训练的一行：它的 MSE 美化了防御",
    "finding.averaging_helps": (
        "对同一图像看到 {releases} 次发出的特征，可使“{base}”的误差减少 {gain:.0f} %：噪声被平均掉了"
    ),
    "finding.jitter_helps": (
        "同一图像反复发出不会带来新信息，但像素变动至多 {jitter}/255（如视频）的 {releases} 次发出"
        "可使“{base}”的误差减少 {gain:.0f} %"
    ),
    "finding.no_attack_beats_floor": "没有攻击优于盲猜基准“{floor}”：要么没有泄露，要么攻击太弱",
    "finding.starved_attacker": ("攻击者只有 {owned} 张图像（训练用了 {trained} 张）：数据匮乏的攻击者会美化防御"),
    "finding.overlap": "{total} 张评估图像中有 {count} 张与攻击者自有图像逐像素相同：对它们只需查表即可",
    "finding.few_images": "只在 {count} 张图像上评判：少于 {wanted} 张时，平均值难以说明其他图像的情况",
    "finding.client_heavier": "客户端的计算量大于服务器（乘加次数 {client:,} 与 {server:,}）：拆分的意义不大",
    "finding.near_chance": "准确率 {accuracy:.1f} % 接近随机水平：无用模型的隐私毫无价值",
    "finding.far_below_undefended": (
        "准确率 {accuracy:.1f} % 远低于这份数据上无防御模型的 {known:.1f} %（{source}）：隐私是以牺牲可用性换来的"
    ),
    "finding.unbalanced": "各类样本数不等：准确率为 {accuracy:.1f} %，各类等权时为 {balanced:.1f} %",
    "finding.few_labels": "攻击者在某一类上只有 {least} 张图像：要求每类 {wanted} 个标签时，只用了这些",
    "finding.pixels_alone": "只按像素排名：特征空间的排名需要同一数据上的无防御运行（--reference RUN）",
    "finding.reference_defended": "参考运行 {run} 本身带有防御：它的特征可能难以区分图像",
    "finding.row_failed": "失败：{reason}",
    "finding.row_not_applicable": "不适用：{reason}",
    "finding.rows_missing": "套件中缺少以下各行：{rows}；去掉 --only 和 --skip 再执行同一命令即可补上",
    "finding.suite_changed": "选项与内置套件不同：{changed}",
    # what conditions say (--fail-if)
    "finding.fails_mean": "{condition} 成立：{value:.4g}（均值 {mean:.4g}，95 % 区间 {low:.4g} 到 {high:.4g}）",
    "finding.passes_mean": "{condition} 不成立：{value:.4g}（均值 {mean:.4g}，95 % 区间 {low:.4g} 到 {high:.4g}）",
    "finding.fails_part": "{condition} 成立：{value:.4g}",
    "finding.passes_part": "{condition} 不成立：{value:.4g}",
    "finding.fails_not_known": "{condition} 无法检验：审计中没有这个数",
    "finding.fails_no_attack": "无法检验任何条件：没有攻击得到结果",
    "finding.fails_missing": "套件中以下各行没有结果：{rows}",
    "finding.fails_unreliable": "不可靠：预算更大时，恢复的内容可能多于审计所示",
    "finding.fails_should_lead": "它应当优于“{other}”却没有：攻击太弱，不足以通过任何检验",
    "finding.training": "{said}",
    "finding.log_lost": "{said}；训练中的警告可能有缺失",
    "finding.scheme_0": "该运行的噪声来自公开的种子（方案 0）：知道种子的人可以去除噪声；请重新训练",
    "finding.no_noise": ("信道不加噪声：这里的攻击没有发现的，别的攻击可能发现；发出的特征泄露多少也无法给出任何界"),
    "finding.key_missing": "缺少密钥噪声的密钥（noise.key）：审计改用另一密钥，按同一分布抽取噪声",
    "finding.measure_left_out": "略去：图像至少要有 {pixels} 像素",
    "finding.not_finished": "运行尚未结束（状态 {status}）：这是第 {done} 轮（共 {planned} 轮）的权重",
    "finding.file_may_be_trained_on": ("如果这个文件是训练图像之一，下面的攻击就见过它：要确保没有，请用 test:NUMBER"),
    "finding.audits_left_out": "未采用已有的审计：{reason}",
    "finding.no_audit": (
        "这组权重还没有审计：下面只有快速攻击。执行 attncem audit {run} 进行测量，之后本页会显示"
        "其中最强攻击对这张图像的结果"
    ),
    "finding.state_not_kept": "它学到的内容太大，没有保存，因此不在这张图像上显示",
    "finding.few_of_class": "类别 {name} 的验证图像很少（{count} 张）：关于该类的说法只是粗略的",
    # what the report itself finds
    "finding.run_status": "训练尚未结束（状态：{status}）",
    "finding.accuracy_collapsed": ("准确率塌缩到 {accuracy:.1f} %（最好的运行：{best:.1f} %）：它的隐私数字意义不大"),
    "finding.no_reference": (
        "无防御模型在 {dataset} 上用 {network} 能达到多少尚不清楚，因此这里不评判防御损失了多少准确率："
        "请用 surrogate.name=none 训练同一配置并加入报告。"
    ),
    "finding.other_reference": (
        "无防御模型在 {dataset} 上的准确率只有 {known} 的，没有 {network} 的，"
        "因此这里只能粗略评判防御损失了多少准确率："
        "请用 surrogate.name=none 训练同一配置并加入报告。"
    ),
    "finding.rows_differ": "各行的{aspects}不同：只应比较同类的行",
    "finding.devices_differ": "各运行在不同设备上测量：时间不可相互比较",
}
"""Sentences by `finding.CODE`."""
