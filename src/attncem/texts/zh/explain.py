"""The explanation of one image, and what is said about a prediction."""

from __future__ import annotations

EXPLAIN: dict[str, str] = {
    "explain.title": "attncem 解释：{run} 上的 {source}",
    "explain.heading": "这张图像透露了什么？",
    "explain.made": (
        "由 attncem {version} 于 {time} 根据运行 {run} 生成（代理损失 {surrogate}，λ = {penalty_weight}，"
        "权重 {weights}，数据 {dataset}）。"
    ),
    "explain.notes": "注意",
    "explain.illustration": (
        "一张图像只是示例。模型泄露多少要用 attncem audit 测量：在全部测试图像上，用训练到收敛的攻击。"
    ),
    # the label
    "explain.label": "{source}：服务器判为 {name}（{probability}）。",
    "explain.label.right": "{source}：服务器判为 {name}（{probability}），判断正确。",
    "explain.label.wrong": "{source}：服务器判为 {name}（{probability}）；实际是 {truth}。",
    "explain.input": "图像与标签",
    "explain.input.lead": "客户端看到的图像，以及服务器对其发出特征的判断。",
    "explain.input.prepared": "对文件所做的预处理：{steps}。",
    "explain.input.alt": "客户端看到的图像",
    "explain.seen": "编码器看到的是前端 {name} 之后的图像：被前端去除的内容不会进入网络。",
    "explain.seen.lead": "旁边是前端之后的图像，即网络得到的全部：灰色表示什么都没有留下。",
    "explain.seen.alt": "前端之后的图像，即网络所见",
    "explain.column.label": "标签",
    "explain.column.confidence": "置信度",
    "explain.true_label": "{name}（真实标签）",
    # what leaves
    "explain.release": (
        "离开设备的内容：{size} {dtype} = {bytes:,} 字节，是图像像素 {image_bytes:,} 字节的 {share:.2f} 倍{file}；"
        "取值从 {minimum:.3g} 到 {maximum:.3g}，{noise}。"
    ),
    "explain.release.file": "，写成文件为 {bytes:,} 字节",
    "explain.noise": "带 {kind} 噪声（σ = {std:g}）",
    "explain.noise.none": "无噪声",
    "explain.feature": "离开设备的内容",
    "explain.feature.short": "发出的特征",
    "explain.feature.lead": ("上方是留在设备上的干净特征 z；下方是发出的特征。所有图中黑色为 {low}，白色为 {high}。"),
    "explain.feature.snr": ("整个 z 的信噪比为 {snr}：这张图像区别于同类的部分，与信道所改变的部分之比。"),
    "explain.feature.hidden": "另有 {count} 个通道未画出。",
    "explain.feature.clean": "干净 {name}",
    "explain.feature.released": "发出 {name}",
    "explain.feature.tile_snr": "信噪比 {snr}",
    "explain.feature.clean_matrix": "干净特征（{name}）",
    "explain.feature.released_matrix": "发出的特征",
    # inside its class
    "explain.class": "在同类之中",
    "explain.class.lead.true": (
        "该图像与另外 {count} 张验证图像组成一个批次；它按真实类别 {name} 计。代理损失是该运行自己的，"
        "取自检查点；在所有图表中，{colour}表示该图像或其类别。"
    ),
    "explain.class.lead.predicted": (
        "该图像与另外 {count} 张验证图像组成一个批次；它按预测类别 {name} 计。代理损失是该运行自己的，"
        "取自检查点；在所有图表中，{colour}表示该图像或其类别。"
    ),
    "explain.class.colour": "这种颜色",
    "explain.place.none": "没有类别 {name} 的验证图像可供比较。",
    "explain.place": "它的干净特征距 {name} 的均值 {distance:.2f}{unit}（各特征的均方根）。",
    "explain.place.among": (
        "它的干净特征距 {name} 的均值 {distance:.2f}{unit}（各特征的均方根），比该类其余 {count} 张中的 {nearer} 更远。"
    ),
    "explain.penalty.attention": (
        "{surrogate} 的注意力在该类中给它的权重为 {weight:.4f}，是均匀权重 {uniform:.4f} 的 {times:.2f} 倍。"
    ),
    "explain.penalty.none": "该模型训练时没有惩罚项，因此没有注意力可显示。",
    "explain.penalty.plain": "代理损失 {surrogate} 对一类中的图像不使用注意力。",
    "explain.penalty.slot": "代理损失 {surrogate} 把一类划分为 {count} 个槽；槽 {best} 占有该图像的 {share}。",
    "explain.penalty.cluster": "代理损失 {surrogate} 把一类划分为 {count} 个簇；簇 {best} 占有该图像的 {share}。",
    "explain.penalty.component": (
        "代理损失 {surrogate} 把一类划分为 {count} 个分量；分量 {best} 占有该图像的 {share}。"
    ),
    "explain.shares.slot": "由哪些槽占有",
    "explain.shares.cluster": "由哪些簇占有",
    "explain.shares.component": "由哪些分量占有",
    "explain.column.slot": "槽",
    "explain.column.cluster": "簇",
    "explain.column.component": "分量",
    "explain.column.share": "占该图像的份额",
    "explain.column.others_share": "占同类图像的平均份额",
    "explain.gates": "门控",
    "explain.gates.caption": (
        "该图像所属类别的门控。“饱和”：取值距 0 或 1 不超过 0.01 的份额；处处关闭的门会使惩罚项失效。"
    ),
    "explain.gates.none": "代理损失 {surrogate} 在该运行中不使用门控。",
    "explain.column.gate": "门",
    "explain.column.mean": "均值",
    "explain.column.lowest": "最小",
    "explain.column.highest": "最大",
    "explain.column.saturated": "饱和",
    "explain.gate.gate_dimension": "维度门：每个特征的离散程度计多少",
    "explain.gate.gate_snr": "信噪比门：离散程度相对均值较大处打开",
    "explain.gate.gate_class": "类别门：对在批次中占比大的类别打开",
    "explain.classes": "批次中的各类别",
    "explain.classes.region": "各类别的方差与惩罚",
    "explain.classes.caption": "干净特征 z 的类内方差（对各特征取平均），以及该类乘以权重 λ 之前的惩罚。",
    "explain.column.class": "类别",
    "explain.column.images": "图像",
    "explain.column.variance": "方差",
    "explain.column.penalty": "惩罚",
    "explain.diagnostics": "代理损失对该批次给出的全部数字",
    # what comes back
    "explain.recovered": "能恢复出什么",
    "explain.recovered.lead": (
        "攻击者拥有 {count:,} 张训练图像，知道编码器和信道，只看到这一次发出的特征，能得到什么。"
    ),
    "explain.recovered.image": "原图像",
    "explain.recovered.alt": "{name} 的重建图像",
    "explain.recovered.shot": "{name}，MSE {mse}",
    "explain.recovered.region": "各重建图像的误差",
    "explain.recovered.audited": "全部测试图像的平均：来自对这组权重的审计（{audit}）。",
    "explain.recovered.unaudited": "这组权重在该威胁模型下还没有审计：{command} 给出全部测试图像的平均。",
    "explain.recovered.from_audit": "审计中的最强攻击，带着它在那里学到的内容",
    "explain.recovered.no_attack": "无法对这张图像进行任何攻击：除盲猜基准外没有可显示的内容。",
    "explain.recovered.better": (
        "{attack} 由发出的特征重建图像，MSE 为 {mse:.4f}，优于盲猜基准“{floor}”（{error:.4f}）。"
    ),
    "explain.recovered.no_better": (
        "{attack} 由发出的特征重建图像，MSE 为 {mse:.4f}，不优于盲猜基准“{floor}”（{error:.4f}）。"
    ),
    "explain.recovered.no_floor": "{attack} 由发出的特征重建图像，MSE 为 {mse:.4f}。",
    "explain.recovered.units": "对这张图像而言，这{worth}。",
    "explain.column.recovered_by": "恢复方法",
    "explain.column.kind": "种类",
    "explain.column.own.note": "本图像",
    "explain.column.audit.note": "审计平均",
    # how to read
    "explain.reading.release": "干净特征 z 与发出的特征",
    "explain.reading.release.text": (
        "客户端由图像计算 z，只送出“发出的特征”，即经过信道的 z。服务器和攻击者看不到别的。"
    ),
    "explain.reading.snr": "信噪比",
    "explain.reading.snr.text": (
        "z 减去同类验证图像均值后的均方，除以信道在这次发出中所改变部分的均方。"
        "低于 1 时，信道掩盖的多于图像区别于同类的部分；为 0 时，同类图像看起来都一样。"
    ),
    "explain.reading.distance": "距离",
    "explain.reading.distance.text": (
        "z 减去同类其他图像均值后，对各特征取均方根，以信道噪声 σ 为单位。离得越远的图像透露得越多。"
    ),
    "explain.reading.attention": "注意力权重",
    "explain.reading.attention.text": (
        "该图像在其类别的加权方差中计多少；一类的权重之和为 1。在 {learn} 之下，使惩罚升高的图像得到更多权重。"
    ),
    "explain.reading.floors": "盲猜基准",
    "explain.reading.floors.text": ("class mean 除标签外从不看发出的特征。重建图像只有优于盲猜基准才有意义。"),
}
"""The explanation's texts by key."""
