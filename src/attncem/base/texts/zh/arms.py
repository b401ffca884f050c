"""The report of a campaign: its arms side by side."""

from __future__ import annotations

ARMS: dict[str, str] = {
    "arms.title": "attncem 批量实验：{name}",
    "arms.made": (
        "由 attncem {version} 于 {time} 根据批量实验 {sha} 生成，该实验计划于 {planned}。"
        "只有一个文件：它不访问任何其他地址。"
    ),
    "arms.wrote": "{folder} 中写入 {count} 个文件",
    "arms.no_font": "没有安装中文字体（如 Noto Sans CJK），因此图中使用英文",
    "arms.problem": "{cell} 无法完整读取：{reason}",
    "arms.kind.releases": "{count} 次发出",
    "arms.of": "{count} / {planned}",
    "arms.and_more": "{named} 等（另有 {count} 个）",
    "arms.unreliable": "其中 {count} 个未收敛",
    "arms.lost": "已失去可用性",
    "arms.floor": "什么都不看的猜测",
    # how far
    "arms.how_far.whole": "全部 {total} 个单元已完成。",
    "arms.how_far.part": "{total} 个单元中，{done} 个已完成，{failed} 个失败，{missing} 个缺失。",
    "arms.state.count": "{count} 个{state}",
    "arms.state.planned": "已计划",
    "arms.state.running": "运行中",
    "arms.state.interrupted": "已中断",
    "arms.state.trained": "已训练，审计未全",
    "arms.state.done": "已完成",
    "arms.state.failed": "失败",
    "arms.lacking": "缺少什么",
    "arms.lacking.link": "缺少什么，以及原因",
    "arms.nothing": "还没有审计得到结果，因此无法比较。下面的单元表说明每个运行的进度。",
    # the answer
    "arms.verdict.nothing": "还没有审计得到结果：本页只说明各运行的进度，不涉及隐私。",
    "arms.verdict.front.surely": "确定位于准确率与最强攻击误差的前沿上：{arms}。",
    "arms.verdict.front.possibly": "就现有种子看，可能位于准确率与误差的前沿上：{arms}。",
    "arms.verdict.lost": ("准确率接近随机水平，或远低于最好的实验组：{arms}。失去可用性的模型所隐藏的，不是隐私。"),
    "arms.verdict.tests": "与 {reference} 的 {count} 次检验中，{shown} 次显示出差异（允许 5\u00a0% 的错误发现）。",
    "arms.verdict.few": "其中 {count} 次种子太少，无论数字如何都无法判断。",
    "arms.verdict.a_higher": "高于参照组",
    "arms.verdict.b_higher": "低于参照组",
    "arms.verdict.no_difference_shown": "未显示差异",
    "arms.verdict.too_few_seeds": "种子太少，无法判断",
    "arms.mark.a_higher": "较高，p = {p}",
    "arms.mark.b_higher": "较低，p = {p}",
    "arms.mark.no_difference_shown": "未显示差异，p = {p}",
    "arms.mark.too_few_seeds": "种子太少，无法判断",
    "arms.headline": "各实验组并列",
    "arms.headline.lead": (
        "准确率，以及最强攻击所得，为对种子的均值 ± 标准差，"
        "附该均值的 95\u00a0% 区间（只有一个种子时：对图像的区间）。"
        "数值下方：与参照组的检验。"
    ),
    "arms.headline.judged": "审计：{kind}。下文只显示一种审计的部分，显示的都是它。",
    "arms.reference": "参照组",
    "arms.filter": "筛选",
    "arms.filter.hint": "行中的文字",
    "arms.filter.of": "筛选表格各行：{table}",
    "arms.save": "另存为",
    "arms.save.csv": "CSV",
    "arms.save.md": "Markdown",
    "arms.save.tex": "LaTeX",
    # columns
    "arms.column.arm": "实验组",
    "arms.column.seeds": "种子数",
    "arms.column.accuracy": "准确率 %",
    "arms.column.attack": "攻击",
    "arms.column.cell": "单元",
    "arms.column.seed": "种子",
    "arms.column.state": "状态",
    "arms.column.training": "训练时间",
    "arms.column.reason": "原因",
    "arms.column.audit": "审计",
    "arms.column.reliable": "已收敛",
    "arms.column.attack_seconds": "攻击时间",
    "arms.column.reference": "参照组",
    "arms.column.measure": "指标",
    "arms.column.difference": "差值",
    "arms.column.p": "p",
    "arms.column.adjusted_p": "校正后的 p",
    "arms.column.verdict": "结论",
    "arms.column.epochs": "轮数",
    "arms.column.memory": "内存，字节",
    "arms.column.client_parameters": "客户端参数量",
    "arms.column.client_macs": "客户端 MACs",
    "arms.column.server_parameters": "服务器参数量",
    "arms.column.server_macs": "服务器 MACs",
    "arms.column.bytes_per_query": "发送字节数",
    "arms.column.ratio": "与第一个之比",
    "arms.column.key": "键",
    "arms.column.value": "值",
    "arms.column.class": "类别",
    "arms.column.class_mse": "MSE",
    "arms.column.class_p05": "最暴露的 5\u00a0% 的 MSE",
    "arms.column.standing": "是否在前沿上",
    "arms.column.share": "重抽样中的份额",
    # the plot
    "arms.trade_off": "准确率与隐私",
    "arms.trade_off.lead": (
        "越靠右越准确，越靠上越私密。大点是实验组，小点是它的一个种子。细线：对种子的 95\u00a0% 区间；"
        "浅色宽线：对图像的 95\u00a0% 区间，再对种子平均。指向一点可看数字，点击可看单元。"
    ),
    "arms.error": "误差指标",
    "arms.front": "谁在前沿上",
    "arms.standing.surely": "确定在前沿上",
    "arms.standing.possibly": "可能在前沿上",
    "arms.standing.not": "不在前沿上",
    "arms.key.seed": "一个种子",
    "arms.plot.accuracy": "准确率 %",
    "arms.plot.trade_off": "准确率与 {measure}",
    "arms.plot.point": "{arm}：准确率 {accuracy}\u00a0%，{value}",
    "arms.plot.costs": "训练时间与最强攻击的误差",
    "arms.plot.seconds": "训练时间，秒",
    "arms.plot.cost": "{arm}：{seconds:.3g} 秒，{mse:.4f}",
    "arms.plot.line": "{arm}：{values}",
    "arms.plot.value": "{key} → {value}",
    "arms.plot.heat": "{arm}：{measure}",
    "arms.plot.cloud": "{arm}：{of}，{method}",
    "arms.method": "降维方法",
    "arms.method.pca": "主成分",
    "arms.method.tsne": "t-SNE",
    "arms.cloud.pixels": "图像像素",
    "arms.cloud.clean": "干净特征",
    "arms.cloud.released": "发出的特征",
    # parts
    "arms.wall": "恢复出了什么",
    "arms.wall.lead": (
        "同样的图像，由各实验组的最强攻击恢复，取第一个种子；每张下方是它的 MSE。点击实验组的名称可看单元。"
    ),
    "arms.wall.dataset": "{dataset}，图像集 {number}",
    "arms.wall.hidden": "为保持页面较小，另有 {images} 张图像和 {rows} 个实验组未显示。",
    "arms.cells": "单元",
    "arms.cells.lead": "每个单元是一个运行：一个实验组在一个网格点上用一个种子。点击名称可看对它的全部攻击。",
    "arms.attacks": "攻击与实验组",
    "arms.attacks.lead": "每个攻击对每个实验组的结果（对种子统计），以及每个攻击都必须超过的猜测。",
    "arms.tests": "检验",
    "arms.tests.lead": (
        "每个实验组与上方所选参照组比较，有相同网格点时取相同网格点。对种子做精确的非配对置换检验；"
        "校正：使所示差异中错误的至多占 5\u00a0%（Benjamini–Hochberg）。“未显示差异”不等于没有差异。"
        "另存的表格包含全部参照组。"
    ),
    "arms.costs": "代价与隐私",
    "arms.costs.lead": ("在所用机器上的训练时间、有记录时的内存峰值，以及一次查询的计算量（与机器无关）。"),
    "arms.sensitivity": "敏感性",
    "arms.sensitivity.lead": (
        "逐个考察网格的键：其余的键在每个种子内取平均，只取该种子在每个值上都有的网格点；"
        "线的两端是对种子的 95\u00a0% 区间。虚线：没有该键的实验组。"
    ),
    "arms.sensitivity.table": "同一内容的表格",
    "arms.heat": "成对的键",
    "arms.heat.lead": "对种子和其余的键取平均；颜色越深数值越高，所有实验组共用一个色标。",
    "arms.explain": "防御的内部",
    "arms.explain.lead": (
        "每个实验组取一个运行的验证图像。上方：它们在防御之前和之后的位置，一种颜色一个类别；主成分之下，"
        "干净特征与发出的特征共用坐标轴；t-SNE 之下，只有谁与谁相邻才有意义。下方：代理损失如何看待部分类别的图像。"
    ),
    "arms.explain.script": "这一部分由脚本绘制，而这里脚本被关闭了。",
    "arms.explain.none": (
        "还没有运行带有特征画像，因此不显示特征与注意力权重：批量实验中设 portraits: true 即可生成。"
    ),
    "arms.explain.left_out": "为保持页面较小，另有 {count} 个特征画像未显示。",
    "arms.explain.training": "训练过程中的门控与槽",
    "arms.explain.training.lead": "每个实验组的第一个网格点：对种子的均值，以及种子之间的范围。",
    "arms.classes": "各类别的风险",
    "arms.classes.lead": ("最强攻击按类别的 MSE，对种子取平均；颜色越深越暴露，每个实验组最暴露的类别已标出。"),
    "arms.classes.table": "全部类别的表格",
    # reading
    "arms.reading": "如何阅读本页",
    "arms.reading.cell": "实验组、单元、种子",
    "arms.reading.cell.text": (
        "实验组是一个有名称的配置。它在其网格的每个点上用每个种子各运行一次；每次运行是一个单元。"
        "失败或缺失的单元不计入平均，种子数会反映这一点。"
    ),
    "arms.reading.mean": "均值 ± 标准差",
    "arms.reading.mean.text": (
        "对种子而言：同样的训练再做一次，数字会变多少。方括号中是均值的 Student 区间。"
        "对图像的区间说明：换成同类的其他图像，同一运行的数字会变多少。"
    ),
    "arms.reading.tests": "种子太少，无法判断",
    "arms.reading.tests.text": (
        "3 个对 3 个种子的精确检验，无论数字如何，p 都不会低于 0.1；4 对 4 可达 0.029，6 对 6 可达 0.002。"
        "p 不可能低于 0.05 时，不做检验。"
    ),
    "arms.reading.strongest": "最强攻击",
    "arms.reading.strongest.text": (
        "在所见不超过威胁模型的攻击中 MSE 最低的一个，对每个运行分别选出；其他指标也取自同一攻击。"
        "可能存在比试过的更强的攻击。"
    ),
    "arms.reading.front": "前沿",
    "arms.reading.front.text": (
        "就对种子的 95\u00a0% 区间看，没有其他实验组能在两方面都更好，则确定在前沿上；"
        "有某个实验组确定更好，则不在前沿上。"
        "只有一个种子时没有区间，也就没有确定可言。"
    ),
    # what the script says
    "arms.script.accuracy": "准确率",
    "arms.script.attack": "攻击",
    "arms.script.close": "关闭",
    "arms.script.seeds": "种子数",
    "arms.script.seed": "种子",
    "arms.script.state": "状态",
    "arms.script.reason": "原因",
    "arms.script.training": "训练时间",
    "arms.script.interval_seeds": "对种子的 95\u00a0% 区间",
    "arms.script.interval_images": "对图像的 95\u00a0% 区间",
    "arms.script.standing": "前沿",
    "arms.script.share": "在种子的重抽样中：",
    "arms.script.report_command": "关于该运行的全部内容：",
    "arms.script.no_audit": "还没有审计。",
    "arms.script.point": "实验组",
    "arms.script.rows_shown": "{{all}} 行中的 {{count}} 行",
    "arms.script.click": "点击：查看单元详情",
    "arms.script.before_undefended": "防御之前：无防御的 {{arm}} 发出的特征",
    "arms.script.before_pixels": "防御之前：像素（该批量实验在这份数据上没有无防御的实验组）",
    "arms.script.clean": "留在设备上的干净特征 z",
    "arms.script.released": "发出的特征",
    "arms.script.kept": "{{share}}\u00a0% 的方差落在这个平面内",
    "arms.script.no_tsne": "没有生成 t-SNE：需要 scikit-learn（附加依赖 tsne）。",
    "arms.script.attention": "该类所有图像的注意力权重，从大到小",
    "arms.script.equal_weight": "虚线：{{weight}}，即所有图像等权时的值；下方是部分图像及其权重",
    "arms.script.shares": "各部分的平均份额",
    "arms.script.gates": "门控：均值 [最小，最大]",
    "arms.script.no_slots": "该类别只由注意力处理：没有槽，因此没有槽的门控。",
    "arms.script.no_attention": ("它的代理损失对一类的图像一视同仁，或没有代理损失：没有注意力、槽或门控可显示。"),
    "arms.script.lost": "已失去可用性：不是隐私",
    "arms.script.strongest": "最强",
    "arms.script.not_reliable": "未收敛",
    "arms.script.image_of": "{{name}} 的图像",
}
"""Texts of the campaign's report by key."""
