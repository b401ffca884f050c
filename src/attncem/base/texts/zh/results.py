"""What stands in results beside findings: what they are about, and why a row does not apply."""

from __future__ import annotations

RESULTS: dict[str, str] = {
    "said.about": "{about}：{said}",
    "said.sentence": "{said}。",
    "said.between": "",
    "about.training": "训练，{cause}",
    "about.log": "日志 {number}",
    "about.audit": "套件 {suite}，威胁模型 {threat}",
    "about.channel": "通道 {number}",
    "about.tokens_down": "行：token，列：特征",
    "about.features_down": "行：特征，列：token",
    "about.features": "全部特征，逐行排列",
    "reason.axes_normal": "主轴方向要求高斯噪声：其他分布的噪声在各方向上并不相同",
    "reason.axes_many": "特征多于 {count} 个时不寻找主轴方向",
    "reason.cells_by_class": "图像没有标签，因此无法按类别划分",
    "reason.no_surrogate": "没有可供评判其划分的代理损失",
    "reason.not_quantised": "无：信道不对发出的特征做量化",
    "reason.rounded": "无：噪声之前的取整没有导数",
    "reason.no_gradient": "无：梯度无法从特征传到像素",
    "reason.one_image": "只有一张图像，无从与其他图像区分",
    "reason.other_shape": "信道改变了 z 的形状，发出的特征无法与 z 比较",
    "reason.not_clipped": "无：噪声之前没有裁剪 z，两个输入可以相差任意多",
    "reason.images_alike": "评估图像彼此没有差别：没有可恢复的内容",
    "reason.law_unknown": "无：信道 {name} 的概率分布未知",
    "reason.no_noise": "无：信道不加噪声，因此发出的特征泄露多少没有任何界",
    "reason.scheme_0": "无：方案 0 的密钥噪声由公开的种子决定，可以被去除",
    "reason.pixels_move": "无：隐私界针对同一像素的多次发出，而这里像素会变动",
    "reason.fresh_before_keyed": "无：密钥噪声之前的新抽样会不带任何噪声地暴露 z 的差异",
    "reason.one_value": "在攻击者自有图像或评估图像中，该属性只有一个取值",
    "reason.no_groups": "没有 {name} 的类别分组：请给出 groups 或 attribute",
    "reason.few_pairs": "成员推断需要 {wanted} 对同类图像，这里只有 {count} 对",
    "reason.no_server": "没有服务器端网络，因此没有准确率",
}
"""Texts that stand in results by key."""
