"""What the command says by itself: lines beside the tables, and the tables of `data` and `runs`."""

from __future__ import annotations

COMMAND: dict[str, str] = {
    "command.trained": "{path}：验证准确率 {accuracy:.1f} %。下一步：attncem audit {path}",
    "command.no_onnx": (
        "{path}：你的网络没有保存为 ONNX（{said}）；命令行无法审计该运行，Python 可以：modules=(encoder, server)"
    ),
    "command.warning": "警告：{run}：{said}",
    "command.checked.failed": "未通过：{run}：{said}",
    "command.checked.passed": "通过：{run}：{said}",
    "command.note": "注意：{said}",
    "command.audit_folder": "各行结果、每张图像的得分与图片：{folder}",
    "command.page": "页面：{path}",
    "command.report": "报告：{path}",
    "command.no_runs": "{folder} 中没有运行",
    "command.no_verb": "{word}：没有这个命令{guess} 可用命令：{verbs}",
    "command.empty": "{name} 给的是空字符串：请去掉它，或给出内容",
    "command.too_large": "{name}={value}：整数最多 64 位",
    "command.no_file": "{file} 无法读取或写入：{reason}",
    "command.memory": "内存不足（{said}）；可以减小 training.batch_size、data.image_size 或换更小的网络",
    "command.interrupted": "已中断{go_on}",
    "command.go_on.train": "；以后继续：attncem train --resume {run}",
    "command.go_on.audit": "；已完成的各行保存在 {run}，再执行同一命令即可继续其余各行",
    "command.goes_on.campaign": "；已完成的部分都已保存，再执行同一命令即可继续其余部分",
    "command.goes_on.search": "；已试过的都已保存，再执行同一命令即可继续其余部分",
    "command.data.columns": "数据集|图像|类别数|训练|测试|状态",
    "command.runs.columns": "运行|状态|代理损失|权重|轮次|验证准确率|审计",
}
