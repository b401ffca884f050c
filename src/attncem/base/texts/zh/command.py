"""What the command says by itself: lines beside the tables, and the tables of `data` and `runs`."""

from __future__ import annotations

COMMAND: dict[str, str] = {
    "command.start.train": (
        "训练 {run}：{data}（训练 {train}，验证 {validation}，测试 {test}）\n"
        "  {network}，拆分处 {cut}；z {shape}，每次查询 {bytes} 字节；{device}，线程 {threads}\n"
        "  第 {first} 到 {last} 轮：{time}"
    ),
    "command.start.audit": (
        "审计 {run}（{weights}）：套件 {suite}，共 {all} 行，待做 {rows} 行\n"
        "  威胁模型 {threat}，自有图像：{own}；受攻击的图像：{images}（{on}）\n"
        "  {device}，线程 {threads}，进程 {workers}"
    ),
    "command.start.unknown": "第一轮之后给出所需时间",
    "command.start.time": "约 {time}",
    "command.left": "训练 {run}：{left}",
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
    "command.start.demo": "演示：{names}\n  {data}；攻击套件 {suite}；进程 {workers}；写入 {folder}",
    "command.demo.next": "请在浏览器中打开报告。接下来可以输入：",
    "command.demo.explain": "  {command} explain {run} test:0\n      一张图像经过有防御模型的过程",
    "command.demo.audit": "  {command} audit {run} --suite standard\n      更强的攻击；会先给出所需时间",
    "command.demo.own": (
        "  {command} train data.name=image_folder data.root=FOLDER data.image_size=32\n"
        "      用自己的图片训练模型，FOLDER 中每个类别一个文件夹"
    ),
    "command.demo.activate": "执行以下命令之后，可直接用名称 attncem 调用：{activate}",
    "command.no_runs": "{folder} 及其子文件夹中没有运行",
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
    "progress.count": "{done}/{total:g}",
    "progress.colon": "：",
    "progress.left": "约剩 {time}",
    "command.data.columns": "数据集|图像|类别数|训练|测试|状态",
    "command.runs.title": "{folder} 中的运行",
    "command.runs.columns": "运行|状态|代理损失|权重|轮次|准确率\n%|攻击\nMSE|审计",
    "command.runs.validation": "{accuracy}*",
    "command.runs.unaudited": "*：在验证图像上；测试图像由 attncem audit RUN 测量",
    # how a run or a data set is
    "command.state.running": "运行中",
    "command.state.finished": "已完成",
    "command.state.stopped": "已停止",
    "command.state.failed": "失败",
    "command.state.interrupted": "已中断",
    "command.state.unknown": "未知",
    "command.state.damaged": "已损坏",
    "command.state.unreadable": "无法读取",
    "command.state.found": "已找到",
    "command.state.missing": "缺失",
    "command.state.incomplete": "不完整",
    "command.state.ok": "正常",
}
