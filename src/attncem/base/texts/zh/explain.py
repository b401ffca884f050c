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
    "explain.answer.open": "最强攻击恢复了这张图像的大部分。",
    "explain.answer.part": "最强攻击恢复了这张图像中盲猜得不到的一部分。",
    "explain.answer.kept": "最强攻击从这张图像恢复的，只比盲猜略多。",
    "explain.answer.blind": "最强攻击从这张图像恢复的，并不比盲猜多。",
    "explain.answer.quick": "没有审计，就不知道攻击者能恢复这张图像的多少。",
    "explain.answer.unknown": "这张图像能被恢复多少尚不清楚。",
    "explain.picture.image": "原图像",
    "explain.picture.seen": "网络所见",
    "explain.picture.attack": "最强攻击的恢复结果",
    "explain.picture.quick": "快速攻击的恢复结果",
    "explain.picture.blind": "盲猜，供比较",
    "explain.picture.error": "{name}，MSE {mse:.4f}",
    "explain.told": "{name}：{value}",
    "explain.told.audit": "全部测试图像的 MSE：{mse:.4f}",
    "explain.average.alike": (
        "审计中的最强攻击“{attack}”恢复这张图像的程度与平均相当：MSE {mse:.4f}，平均 {mean:.4f}。"
    ),
    "explain.average.better": "审计中的最强攻击“{attack}”对这张图像恢复得比平均好：MSE {mse:.4f}，平均 {mean:.4f}。",
    "explain.average.worse": "审计中的最强攻击“{attack}”对这张图像恢复得比平均差：MSE {mse:.4f}，平均 {mean:.4f}。",
    "explain.quick": "快速攻击中“{attack}”最接近这张图像：MSE {mse:.4f}。",
    "explain.blind.better": (
        "不看发出的特征，对这张图像最好的猜测“{floor}”的 MSE 为 {error:.4f}：攻击留下了该误差的 {share}。"
    ),
    "explain.blind.alike": (
        "不看发出的特征，对这张图像最好的猜测“{floor}”的 MSE 为 {error:.4f}：攻击的误差是它的 {share}，大致相同。"
    ),
    "explain.blind.worse": (
        "不看发出的特征，对这张图像最好的猜测“{floor}”的 MSE 为 {error:.4f}：攻击的误差是它的 {share}，比猜测更差。"
    ),
    "explain.reliable.yes": "该攻击可靠：更大的预算也改进不多。",
    "explain.reliable.no": "该攻击不可靠：预算更大仍会改进，更有耐心的人可能恢复更多。",
    "explain.reliable.unknown": "没有检验更大的预算是否会使攻击更强。",
    # the label
    "explain.label": "{source}：服务器判为 {name}（{probability}）。",
    "explain.label.right": "{source}：服务器判为 {name}（{probability}），判断正确。",
    "explain.label.wrong": "{source}：服务器判为 {name}（{probability}）；实际是 {truth}。",
    "explain.input": "服务器的判断",
    "explain.input.lead": "服务器只得到发出的特征；以下是它认为最可能的标签。",
    "explain.input.prepared": "对文件所做的预处理：{steps}。",
    "explain.seen": "编码器看到的是前端 {name} 之后的图像：被前端去除的内容不会进入网络。",
    "explain.seen.lead": "前端之后的图像，即网络得到的全部：灰色处什么都没有留下。",
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
    "explain.penalty.gates_alone": (
        "代理损失 {surrogate} 只给这些类别分配槽：{divided}。{name} 只由门控注意力处理，因此没有槽可显示。"
    ),
    "explain.penalty.gates_alone.all": "代理损失 {surrogate} 没有给任何类别分配槽：全部只由门控注意力处理。",
    "explain.rank.own": "本图像",
    "explain.rank.other": "同类的另一张图像",
    "explain.rank.place": "第 {place} 位，共 {count} 位",
    "explain.rank.line": "均匀权重：{value:.4g}",
    "explain.shares.slot": "由哪些槽占有",
    "explain.shares.cluster": "由哪些簇占有",
    "explain.shares.component": "由哪些分量占有",
    "explain.column.slot": "槽",
    "explain.column.cluster": "簇",
    "explain.column.component": "分量",
    "explain.shares.lead": "条形是本图像；标记是同类其余 {count} 张图像的平均。",
    "explain.shares.value": "{part} {number}",
    "explain.shares.own": "本图像：{share}",
    "explain.shares.others": "同类其他图像：{share}",
    "explain.gates": "门控",
    "explain.gates.caption": (
        "该图像所属类别的门控，从 0（关）到 1（开）：条形是各特征的范围，标记是均值。“饱和”："
        "取值距 0 或 1 不超过 0.01 的份额；处处关闭的门会使惩罚项失效。"
    ),
    "explain.gates.none": "代理损失 {surrogate} 在该运行中不使用门控。",
    "explain.gates.alone.attention": "以上是注意力的门控；{name} 没有槽，因此没有槽的门控。",
    "explain.gates.alone.nothing": "注意力在该运行中不使用门控；{name} 没有槽，因此没有槽的门控。",
    "explain.gates.range": "从 {low} 到 {high}",
    "explain.gates.mean": "均值 {mean}",
    "explain.gates.saturated": "饱和：{share}",
    "explain.gate.gate_dimension": "维度门：每个特征的离散程度计多少",
    "explain.gate.gate_snr": "信噪比门：离散程度相对均值较大处打开",
    "explain.gate.gate_class": "类别门：对在批次中占比大的类别打开",
    "explain.gate.slot_gate_dimension": "槽的维度门：每个特征在槽内的离散程度计多少",
    "explain.gate.slot_gate_snr": "槽的信噪比门：槽内离散程度相对均值较大处打开",
    "explain.gate.slot_gate_class": "槽的类别门：对在批次中占比大的类别打开",
    "explain.classes": "批次中的各类别",
    "explain.classes.region": "各类别的方差与惩罚",
    "explain.classes.caption": "干净特征 z 的类内方差（对各特征取平均），以及该类乘以权重 λ 之前的惩罚。",
    "explain.column.class": "类别",
    "explain.column.images": "图像",
    "explain.column.variance": "方差",
    "explain.column.penalty": "惩罚",
    "explain.column.divided": "槽",
    "explain.divided.yes": "有",
    "explain.divided.no": "只有注意力",
    "explain.diagnostics": "代理损失对该批次给出的全部数字",
    # what comes back
    "explain.recovered": "对它的全部攻击",
    "explain.recovered.lead": (
        "攻击者拥有 {count:,} 张训练图像，知道编码器和信道，只看到这一次发出的特征，能得到什么。"
    ),
    "explain.recovered.image": "原图像",
    "explain.recovered.alt": "“{name}”的重建图像",
    "explain.recovered.shot": "{name}，MSE {mse}",
    "explain.recovered.region": "各重建图像的全部指标",
    "explain.recovered.audited": "全部测试图像的平均：来自对这组权重的审计（{audit}）。",
    "explain.recovered.unaudited": "这组权重在该威胁模型下还没有审计：{command} 给出全部测试图像的平均。",
    "explain.recovered.from_audit": "审计中的最强攻击，带着它在那里学到的内容",
    "explain.recovered.no_attack": "无法对这张图像进行任何攻击：除盲猜基准外没有可显示的内容。",
    "explain.recovered.units": "对这张图像而言，这{worth}。",
    "explain.column.recovered_by": "恢复方法",
    "explain.column.kind": "种类",
    "explain.column.own.note": "本图像",
    "explain.column.audit.note": "审计平均",
    "figure.pictures": "最强攻击对若干图像的恢复结果",
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
    "explain.reading.floors.text": (
        "平均图像什么都不看，类平均图像只看标签。重建图像只有优于盲猜基准才有意义。相差不超过 5 % 的误差称为大致相同。"
    ),
}
"""The explanation's texts by key."""
