"""What `import-cem` says: what of the baseline's training is not the same here."""

from __future__ import annotations

IMPORTING: dict[str, str] = {
    "import.note.validation": "留出 5 % 的训练图像用于验证；基线按测试准确率选择权重",
    "import.note.normalisation": ("{dataset}：图像按数据集自身的均值与标准差归一化；基线所用的常数是单张图像的"),
    "import.note.no_sigmoid": "没有 _sgm 时，基线在瓶颈层之后加批归一化；这里 z 到瓶颈层为止",
    "import.note.cut": "{arch} 的 --cutlayer 与 model.cut 的层编号不同：请比较客户端的乘加次数",
    "import.note.warm_up": "学习率在第一轮内逐渐上升；基线的第一轮学习率为 0",
    "import.note.selection": "在最后六分之一的轮次中，按验证准确率保留最好的",
    "import.note.local_lr": "--local_lr={value} 未采用：客户端与服务器共用学习率 {rate}",
    "import.note.no_noise": "没有噪声而 --lambd={weight}，基线也无法训练：已略去",
    "import.note.index_defect": "每个类别有自己的权重与方差；surrogate.index_defect=true 可复现基线的缺陷",
    "import.note.steps": "{option}：步数按所写采用；基线解析这段文字时会静默失败，取 3",
    "import.note.adversarial": "对抗解码器从不接触测试图像；基线先用其中 9,000 张训练它",
    "import.note.attacked_without": "{stage} 是被攻击的信道的一部分；基线攻击的是没有它的特征",
    "import.note.top_k": "保留每个样本的最大值，而不是整个批次的最大值",
    "import.note.pruning": "剪枝用掩码关闭通道，在训练图像上评判",
    "import.note.left_out": "--{flag} 未采用",
    "import.note.unknown": "--{flag} 不是基线训练的参数：未采用",
    "import.attacks": (
        "不需要攻击命令：attncem audit RUN --suite standard 中的“基线解码器”（baseline's decoder）一行就是那个攻击"
    ),
    "import.written": "{file}",
    "import.next": "下一步：attncem train --config {file}",
    "import.run": "{path}：验证准确率 {accuracy:.1f} %。下一步：attncem audit {path}",
}
