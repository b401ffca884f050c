"""Certificates: assumptions of bounds by code, findings about them, and their section of the report."""

from __future__ import annotations

CERTIFICATES: dict[str, str] = {
    # what bounds assume
    "assumption.same_law": "将来的图像与评估图像来自同一分布",
    "assumption.key_secret": "噪声的密钥保持秘密，且完全相同的像素每次发出时噪声相同",
    "assumption.candidates_by_lot": "候选图像与图像同分布随机抽取，彼此等可能；刻意挑选的候选可能更容易被认出",
    "assumption.entropy_normal": "图像各分量的熵取正态分布的熵，它从不低于真实的熵：这是一个估计",
    "assumption.entropy_neighbours": "图像前若干分量的熵由图像之间的距离估计",
    "assumption.continuous": "像素视为连续数；比取整更细的分量略去",
    "assumption.unbiased": "攻击者是无偏的：对每一张图像平均而言都正确。了解图像样貌的攻击并非无偏，可能做得更好",
    "assumption.smooth": "从像素到噪声的路径上没有发现不可导点（检查的是模块，而不是其公式）",
    "assumption.not_smooth": "从像素到噪声的路径上有不可导点，不等式在那里不再严格成立：这是一个估计",
    "assumption.prior_normal": "图像视为具有相应方差的正态分布，其信息量是所有分布中最小的：这是一个估计",
    "assumption.as_drawn": "它适用于离开设备的内容，不适用于训练和审计中更快的抽样",
    "assumption.fitted_to": "它针对用来拟合分区与离散程度的那些图像，不构成任何界",
    # findings
    "finding.surrogate_flatters": (
        "代理损失自己的划分在训练图像上给出 {training:.4g} nat，在评估图像上给出 {evaluation:.4g} nat：惩罚项过于乐观"
    ),
    "finding.no_certificate": "没有可证明的隐私界：{reason}",
    "finding.bound_violated": (
        "“{bound}”声称 {claim:.4g}，而同一审计的“{other}”显示 {seen:.4g}：有假设不成立，或某个估计有误；不要依赖它"
    ),
    # bounds in words
    "bound.leakage": "关于图像的泄露",
    "bound.leakage.at": "泄露，同一图像发出 {number:,} 次",
    "bound.leakage_training": "训练图像上的泄露（分区由它们拟合）",
    "bound.infonce": "泄露，由区分图像得出（InfoNCE）",
    "bound.decoder": "泄露，由攻击恢复的内容得出",
    "bound.mse_normal": "任何攻击的误差，熵取正态分布",
    "bound.mse_neighbours": "任何攻击的误差，熵由近邻估计",
    "bound.dfil": "对角 Fisher 信息泄露（dFIL）",
    "bound.mse_unbiased": "无偏攻击者的误差，1/dFIL",
    "bound.mse_van_trees": "任何攻击的误差，由 van Trees 不等式得出",
    "bound.rank_1.at": "在 {number:,} 个候选中认对的份额",
    "bound.epsilon": "本地差分隐私的 ε",
    "bound.releases": "预算之内同一图像的发出次数",
    "bound.by": "{title}（{by}）",
    "bound.claim.at_most": "至多 {claim:.4g} {unit}",
    "bound.claim.at_least": "至少 {claim:.4g} {unit}",
    "bound.confidence": "{said}（95 % 置信度）",
    "bound.kind.bound": "已证明",
    "bound.kind.estimate": "估计",
    "bound.line.bound": "{name}：{claim}，已证明的界",
    "bound.line.estimate": "{name}：{claim}，估计值",
    "bound.vacuous": "{said}；空洞",
    # the section of the report
    "certificates.title": "可证明的隐私界",
    "certificates.lead": (
        "任何攻击都无法越过的界，由信道噪声和特征的离散程度得出，而不取决于某个攻击做得如何。"
        "每个数字是其区间中可以据以声称的一端。"
    ),
    "certificates.axis.note": (
        "▷ 已证明泄露的量，至多为参与区分的图像数的自然对数；◁ 至多可能泄露的量；◇ 攻击所得图像透露的量，为估计值。"
        "真实泄露落在这条线上：线的长度就是无人知晓的部分。"
    ),
    "certificates.most": "攻击者对一张图像所见到的，无论由谁来看，至多透露 {high:.3g} nat（{bits:.3g} 比特）。",
    "certificates.none": "该模型发出的特征透露多少，没有任何界。",
    "certificates.least": "已证明至少泄露 {low:.3g} nat。",
    "certificates.told": "据估计，攻击恢复的内容透露 {told:.3g} nat。",
    "certificates.region": "{run} 的可证明的隐私界",
    "certificates.caption": "已证明：只要假设成立就成立。空洞：没有说出任何原本不知道的内容。",
    "certificates.column.row": "隐私界",
    "certificates.column.of": "界定什么",
    "certificates.column.claim": "可声称",
    "certificates.column.kind": "种类",
    "certificates.column.assumed": "前提",
    "certificates.vacuous": "空洞",
    "certificates.not_said": (
        "隐私界没有说的：它针对图像的平均，而不是每一张；它不涉及标签，有用的特征必然透露标签；"
        "很小的泄露也可能恰好是要紧的那一个事实。"
    ),
    "figure.leakage": "泄露的下限与上限",
    "figure.leakage.x": "关于一张图像的 nat 数，计所见的全部发出（1 以下为线性）",
    "figure.leakage.span": "{run}：{low:.3g} 到 {high}",
    # the privacy card
    "card.title": "{run} 的隐私卡",
    "card.made": "由 {generator} 于 {time} 生成。",
    "card.what": "对象",
    "card.fact.network": "网络",
    "card.fact.data": "数据",
    "card.fact.weights": "权重与指纹",
    "card.fact.bytes": "一张图像离开设备的字节数",
    "card.fact.client": "客户端参数量",
    "card.network": "{name}，在 {cut} 处拆分",
    "card.defence.front_end": "前端：{options}",
    "card.defence.surrogate": "训练时使用惩罚项 {name}，权重 {weight:g}",
    "card.defence.stage": "信道：{options}",
    "card.undefended": "没有任何防御",
    "card.attacks": "针对恢复图像的防御，及其结果",
    "card.accuracy": "在受攻击的同一批发出特征上，准确率 {accuracy} [{low}, {high}]",
    "card.against": "{suite} v{version}，攻击者“{threat}”：",
    "card.no_result": "没有攻击得到结果。",
    "card.strongest": (
        "{count} 种攻击中最强的“{attack}”恢复 {images} 张图像，MSE 为 {mse:.4f} [{low:.4f}, {high:.4f}]；"
        "每二十张中有一张低于 {exposed:.4f}。"
    ),
    "card.share": "它留下了盲猜（“{floor}”）误差的 {share}。",
    "card.assumptions": "上面各名称所指的假设",
    "card.caveats": "注意事项",
    "card.uncertified": "没有计算可证明的隐私界：attncem audit RUN --suite certificates",
    "card.not_said.attacks": "没有试过的攻击可能做得更好；只有已证明的界对所有攻击成立",
    "card.not_said.average": "数字针对图像的平均：个别图像可能泄露更多",
    "card.not_said.labels": "有用的特征会透露标签，以及与标签相伴的内容",
    "card.not_said.assumptions": "界只在其假设成立时成立：其他图像、其他信道、密钥丢失均不在内",
    "card.not_said.others": "经其他途径离开的内容（日志、时间、回答本身）没有考察",
}
