"""The report: its verdict, headings, columns and explanations."""

from __future__ import annotations

REPORT: dict[str, str] = {
    "report.title": "attncem 报告：{runs}",
    "report.heading": "这些拆分模型泄露了什么？",
    "report.made.one": "由 attncem {version} 于 {time} 根据 1 个运行生成。",
    "report.made.many": "由 attncem {version} 于 {time} 根据 {count} 个运行生成。",
    "report.colours": "各运行的颜色",
    "report.warnings": "请先阅读这些警告",
    "report.warnings.short": "警告",
    "report.aspect.dataset": "数据集",
    "report.aspect.data": "评估数据",
    "report.aspect.suite": "套件",
    "report.aspect.changed": "改动的选项",
    "report.aspect.threat": "威胁模型",
    "report.first": "一眼看各模型",
    "report.first.accuracy": "准确率",
    "report.first.removed": "攻击者消除了盲猜误差的 {share}",
    "report.first.attack": "“{attack}”：MSE {mse}",
    "report.first.guess": "盲猜“{guess}”：{mse:.4f}",
    "report.first.no_guess": "审计中没有盲猜可与最强攻击“{attack}”比较。",
    "report.first.unaudited": "{total} 个种子中有 {count} 个尚未审计。",
    "report.first.doubt": "{total} 个种子中有 {count} 个的攻击尚未收敛，真实泄露可能更大。",
    "report.first.reliable": "可靠",
    "report.first.unreliable": "不可靠",
    "report.first.warnings": "警告：{count}",
    "report.first.weight": "{defence}，λ\u00a0{weight:g}",
    "report.first.seeds": "{count} 个种子：均值 ± 标准差",
    "report.first.cut": "{network}，拆分处 {cut}",
    "report.first.dataset": "数据集 {value}",
    "report.first.network": "网络 {value}",
    "report.first.channel": "信道 {value}",
    "report.first.attacker": "攻击者 {value}",
    "report.first.each": "各模型不同：见上",
    "report.first.noise": "σ\u00a0{noise:g}",
    "report.first.suite": "{threat}，套件 {suite} v{version}",
    "report.first.adversary": "{name}：{owned}，能看到{sight}",
    "report.words": "同样的内容，用文字说",
    # the verdict at the top
    "report.verdict.unaudited": "还没有运行经过审计，因此这些模型泄露了什么尚不清楚。",
    "report.verdict.no_result": "对 {run} 没有任何攻击得到结果，因此它泄露了什么尚不清楚。",
    "report.verdict.near_chance": "{run} 的准确率为 {accuracy}，接近随机水平：无从谈论它的隐私。",
    "report.verdict.collapsed": "{run} 已失去准确率（{accuracy}）：它的误差 {mse:.4f} 意义不大。",
    "report.verdict.floor": (
        "对 {run}{accuracy}，该套件中没有攻击优于盲猜基准（“{attack}”，MSE {mse:.4f}）；更强的攻击也许可以。"
    ),
    "report.verdict.strongest": "对 {run} 最强的攻击“{attack}”恢复图像的 MSE 为 {mse:.4f}{floor}{accuracy}。",
    "report.verdict.accuracy": "（准确率 {accuracy}）",
    "report.verdict.at_accuracy": "，此时准确率为 {accuracy}",
    "report.verdict.above_floor": "（盲猜基准 {floor:.4f}）",
    "report.verdict.below_floor": "（盲猜基准 {floor:.4f}；消除了盲猜误差的 {removed:.0f} %）",
    "report.verdict.units": "这{worth}。",
    "report.verdict.doubt": "该攻击尚未收敛，真实泄露可能更大。",
    "report.verdict.ends": "以上是有用的模型中最暴露与最不暴露的两个；其余 {count} 个见下文。",
    "report.verdict.one_seed": "每行只有一个种子：所示差异还不足以断言哪种方法更好。",
    # audits that are left out
    "report.left_out.weights": "未采用：审计 {audit} 针对该运行的另一组权重（{weights}，指纹 {fingerprint}）",
    "report.left_out.run": "未采用：审计 {audit} 针对另一个运行（{run}，权重 {weights}，指纹 {fingerprint}）",
    "report.left_out.old": ("未采用：{file} 由 attncem 0.1 写成，已不再支持；重新生成：attncem audit {run}{options}"),
    "report.left_out.foreign": "外部编码器",
    # the headline table
    "report.headline": "数字",
    "report.headline.lead": (
        "每个模型与对它最强的攻击。方括号：对图像的 95 % 区间；有多个种子时为均值 ± 标准差，以及均值对种子的区间。"
    ),
    "report.headline.seeds": "单个种子",
    "report.headline.reliable_of": "{count} / {total}",
    "report.headline.caption": (
        "PSNR 是逐图 PSNR 的平均。“最暴露的 5 %”：逐图 MSE 的第 5 百分位数。训练时间是相对第一个运行的比值。"
    ),
    "report.headline.unaudited": "尚未审计：{command}",
    "report.headline.no_result": "无结果",
    "report.headline.floor_wins": "盲猜基准：没有更强的攻击",
    "report.guesses": "盲猜基准",
    "report.guesses.lead": (
        "它们什么都不看，或只看预测标签：每个攻击都必须优于它们。按预测标签的猜测取决于模型的预测，"
        "因此每个模型各有自己的。"
    ),
    "report.guess.of": "{guess}（{run}）",
    "report.guess.all": "所有模型",
    "report.column.guess": "猜测",
    "report.column.of": "用于",
    "report.column.run": "运行",
    "report.column.surrogate": "代理损失",
    "report.column.penalty_weight": "λ",
    "report.column.penalty_weight.note": "惩罚权重",
    "report.column.noise": "σ",
    "report.column.noise.note": "噪声",
    "report.column.suite": "套件",
    "report.column.threat": "威胁模型",
    "report.column.accuracy": "准确率",
    "report.column.accuracy.note": "%",
    "report.column.strongest": "最强攻击",
    "report.column.exposed": "MSE，5\u00a0%",
    "report.column.exposed.note": "最暴露",
    "report.column.training": "训练",
    "report.column.training.note": "时间",
    "report.column.client": "客户端",
    "report.column.server": "服务器",
    "report.column.cost.note": "参数量，MACs",
    "report.column.query": "查询",
    "report.column.query.note": "字节",
    "report.column.reliable": "可靠",
    "report.column.attack": "攻击",
    "report.column.kind": "种类",
    "report.column.gain": "加倍的增益",
    "report.column.parameters": "参数量",
    "report.column.time": "时间",
    "report.column.class": "类别",
    "report.yes": "是",
    "report.no": "否",
    "report.family.region": "“{attack}”在 {run} 上尝试的解码器",
    "report.family.caption": (
        "“{attack}”对 {run}：攻击者自有验证图像上的 MSE，按宽度与自有图像数排列。向右或向下仍在下降的，还会继续下降。"
    ),
    "report.family.width": "宽度",
    "report.family.images": "自有图像",
    "report.family.card": "自有图像 {count} 张",
    "report.samples": "样本：离散程度 {spread:.4f}，MSE {mse:.4f}（校准良好时两者相等）",
    "report.sample.mse": "单个样本的 MSE {mean:.4f}",
    "report.sample.ssim": "单个样本的 SSIM {mean:.3f}",
    "report.sample.edges": "单个样本的边缘相似度 {mean:.3f}",
    "report.fixed_budget": "按论文中的预算：没有检验增加预算是否更强",
    "report.private.higher": "越高越私密",
    "report.private.lower": "越低越私密",
    # what is protected
    "report.protected": "哪些内容受到保护",
    "report.protected.lead": (
        "在每个运行的最强攻击之下，最佳盲猜的误差还剩多少。100 %：攻击所知不多于盲猜；0 %：得到了完美的副本。"
        "更强的攻击可能使剩余更少。"
    ),
    "report.protected.left": "剩余 {share}",
    "report.protected.beside": "{value}；盲猜 {blind}（{floor}）",
    "report.protected.bar.band_mean": "平均颜色",
    "report.protected.bar.band_low": "粗略形状",
    "report.protected.bar.band_high": "细节",
    "report.protected.bar.structure": "结构",
    "report.protected.bar.edges": "边缘",
    "report.protected.note.band_mean": "与亮度",
    "report.protected.note.band_low": "每幅 4 个周期以下",
    "report.protected.note.band_high": "4 个周期及以上",
    "report.protected.note.structure": "除平均颜色外的全部",
    "report.protected.note.edges": "轮廓的吻合",
    "report.protects.open_open": "攻击者能恢复大部分形状，以及大部分颜色和亮度。",
    "report.protects.open_part": "攻击者能恢复大部分形状，以及部分颜色和亮度。",
    "report.protects.open_kept": "攻击者能恢复大部分形状；颜色和亮度基本受到保护。",
    "report.protects.part_open": "攻击者能恢复部分形状，以及大部分颜色和亮度。",
    "report.protects.part_part": "攻击者能恢复部分形状，以及部分颜色和亮度。",
    "report.protects.part_kept": "攻击者能恢复部分形状；颜色和亮度基本受到保护。",
    "report.protects.kept_open": "攻击者能恢复大部分颜色和亮度；形状基本受到保护。",
    "report.protects.kept_part": "攻击者能恢复部分颜色和亮度；形状基本受到保护。",
    "report.protects.kept_kept": "形状基本受到保护，颜色和亮度也是。",
    "report.protects.floor": "该套件中没有攻击优于盲猜：要么没有泄露，要么攻击太弱。",
    "report.protects.useless": "模型已失去准确率：它隐藏了什么都没有价值。",
    # accuracy and error
    "report.plot": "准确率与误差",
    "report.plot.lead": (
        "越靠右越有用，越靠上越私密。虚线：盲猜基准，各模型不同时为一条带；"
        "接近它们的攻击对单张图像所知甚少。误差条：对图像的 95 % 区间；有多个种子时为标准差，"
        "每个种子是一个浅色点。"
    ),
    "report.plot.empty": "没有审计同时具有准确率和得到结果的攻击。",
    # all attacks
    "report.attacks": "全部攻击",
    "report.attacks.lead": ("每个运行最强的一行用粗体。“加倍的增益”：攻击预算加倍后误差下降了多少；接近零表示已收敛。"),
    "report.attacks.caption": "像素取值 [0, 1]。方括号：95 % 区间。",
    "report.attacks.line": "{measure} {value}",
    "report.kind.floor": "盲猜基准",
    "report.kind.attack": "攻击",
    "report.kind.certificate": "隐私界",
    "report.kind.probe": "探针",
    "report.outcome.reason": "{outcome}：{reason}",
    "report.outcome.failed": "失败",
    "report.outcome.not_applicable": "不适用",
    "report.bound.bound": "{name}：{value:.4g} {unit} [{low:.4g}, {high:.4g}]，已证明的界",
    "report.bound.estimate": "{name}：{value:.4g} {unit} [{low:.4g}, {high:.4g}]，估计值",
    "report.score": "{name}：{mean:.4g} [{low:.4g}, {high:.4g}]",
    "report.probe.rank_1": "在 {among} 个候选中，真实图像排第一：{share}（随机水平 {blind}）",
    "report.probe.rank": "排名中位数 {median:g}（随机水平 {chance:g}）",
    "report.probe.reciprocal_rank": "平均倒数排名 {mean:.3f}（随机水平 {chance:.3f}）",
    "report.probe.pixel_rank_1": "按像素，在 {among} 个候选中真实图像排第一：{share}（随机水平 {blind}）",
    "report.probe.pixel_rank": "排名中位数 {median:g}（随机水平 {chance:g}）",
    "report.probe.feature_rank_1": "按参考网络的特征排第一：{share}（随机水平 {blind}）",
    "report.probe.feature_rank": "排名中位数 {median:g}（随机水平 {chance:g}）",
    "report.probe.by": "凭“{attack}”重建的图像",
    "report.probe.accuracy": "每类 {labels} 个标签：准确率 {share}（随机水平 {blind}）",
    "report.probe.balanced": "均衡准确率 {share}（随机水平 {blind}）",
    "report.probe.attribute_accuracy": "属性判断正确：{share}（随机水平 {blind}）",
    "report.probe.attribute_balanced": "均衡准确率 {share}（随机水平 {blind}）",
    "report.probe.auc": "区分训练成员与其他图像：AUC {mean:.3f} [{low:.3f}, {high:.3f}]（随机水平 {chance:g}）",
    "report.probe.balanced_accuracy": "均衡准确率 {share}（随机水平 {blind}）",
    "report.probe.share": "{mean} [{low}, {high}] %",
    # asking again
    "report.asking": "重复询问",
    "report.asking.lead": (
        "同样的攻击，但攻击者对每张图像看到的发出次数多于威胁模型所允许的。它们不参与最强攻击的评选。"
        "有抖动时，每次发出的图像像素都会偏移若干灰度级（共 255 级），如视频，或重新编码过的照片。"
    ),
    "report.asking.helps": "重复询问有用：同一图像的 {releases} 次发出使“{base}”的误差减少 {gain} %。",
    "report.asking.flat": "重复询问没有用：完全相同的图像发出 {releases} 次，“{base}”的误差减少 {gain} %。",
    "report.asking.moved": "像素变动至多 {jitter}/255 的图像发出 {releases} 次，使“{base}”的误差减少 {gain} %。",
    "report.asking.moved_flat": (
        "像素变动至多 {jitter}/255 的图像发出 {releases} 次也没有用：“{base}”的误差减少 {gain} %。"
    ),
    "report.asking.gain": "{mean} [{low}, {high}]",
    "report.asking.caption": "“减少的误差”：相对该攻击第一行的百分比，按图像配对。",
    "report.asking.region": "按发出次数列出的误差，{run}",
    "report.column.releases": "发出次数",
    "report.column.releases.note": "每张图像",
    "report.column.taken_off": "减少的误差",
    "report.column.taken_off.note": "%",
    "report.column.units": "相当于",
    "report.column.units.note": "缩略图，主成分",
    "report.sight": "{releases}，±{jitter}",
    "report.reading.units": "相当于",
    "report.reading.units.text": (
        "在这些评估图像上留下同样平均 MSE 的缩略图大小，或主成分（训练图像的主轴）个数。"
        "“平均图像”：不优于什么都不看的猜测。"
    ),
    # the gallery
    "report.gallery": "画廊",
    "report.gallery.lead": "攻击者得到的图像。重建图像下方的数字是它自己的 MSE。有多个种子时显示第一个。",
    "report.gallery.choose": "显示的攻击：",
    "report.gallery.strongest": "每个运行的最强攻击",
    "report.gallery.fixed": "各运行使用相同的图像",
    "report.gallery.fixed_of": "各运行使用相同的图像：{dataset}",
    "report.gallery.region": "原图与重建图像",
    "report.gallery.reconstruction": "“{attack}”在 {run} 上对 {name} 的重建图像",
    "report.gallery.empty": "审计中没有图像。",
    "report.gallery.best": "{run}：恢复得最好（最暴露）",
    "report.gallery.worst": "{run}：恢复得最差",
    # learning curves
    "report.curves": "学习曲线",
    "report.curves.lead": (
        "指向曲线可看数值，或用 Tab 键移到曲线上，再用方向键移动。一个运行一条线，一种方法一种颜色。"
    ),
    "report.curves.empty": "没有训练日志。",
    "report.curves.health": "代理损失的健康指标",
    "report.curves.health.lead": ("惩罚项是否仍在度量离散程度。名称旁的界限会触发警告；始终为 0 的图不显示。"),
    "report.curves.attacks": "攻击：攻击者自有验证图像上的误差随预算的变化",
    "report.curves.attacks.lead": "曲线末端仍在下降，说明攻击停得太早。",
    # classes
    "report.classes": "类别",
    "report.classes.lead": "平均值会掩盖泄露最多的类别：它用 {mark} 标出（在该运行的最强攻击下 MSE 最低）。",
    "report.classes.region": "{dataset} 上各类别的准确率与 MSE",
    "report.classes.caption": (
        "准确率（%）与最强攻击的 MSE；有记录时，还列出该类最暴露的 5 % 图像所低于的 MSE。有多个种子时为均值。"
    ),
    "report.classes.accuracy": "准确率，%",
    "report.classes.mse": "MSE",
    "report.classes.exposed": "MSE，最暴露的 5 %",
    # how to read
    "report.reading": "如何阅读",
    "report.reading.title": "如何阅读本页",
    "report.reading.removed": "消除的盲猜误差",
    "report.reading.removed.text": (
        "一减去最强攻击的 MSE 与同一模型最佳盲猜的 MSE 之比：0 % 相当于除预测标签外什么都不看的猜测，"
        "100 % 是完美的副本。方括号中是攻击误差的 95 % 区间对应的值，盲猜误差取其本身；"
        "有多个种子时 ± 为标准差。"
    ),
    "report.reading.intervals": "区间",
    "report.reading.intervals.text": (
        "对评估图像做自助法得到的 95 % 区间。它们不说明换一个种子会怎样：每行只有一个种子时，没有哪一行是胜者。"
    ),
    "report.reading.floors": "盲猜基准",
    "report.reading.floors.text": (
        "从不看发出的特征、或只看预测标签的猜测。误差接近它们，说明攻击学到的很少；误差远低于它们，就是泄露。"
    ),
    "report.reading.strongest": "最强攻击",
    "report.reading.strongest.text": "该审计中平均 MSE 最低的一行。它只给出泄露的下限：可能存在更强的攻击。",
    "report.reading.reliable": "可靠",
    "report.reading.reliable.text": "攻击已收敛并通过自身的检查。否则模型看起来会比实际更私密。",
    "report.reading.accuracy": "准确率",
    "report.reading.accuracy.text": ("经过攻击者所见的同一信道测得。失去准确率的模型不是私密，而是无用。"),
    "report.reading.protected.text": (
        "剩余低于 {open} 表示大部分已被恢复，达到 {kept} 表示基本受到保护，介于两者之间表示部分被恢复。"
        "颜色和亮度按平均颜色评判；形状按结构或边缘评判，取攻击做得更好的一项。"
    ),
    "report.reading.probes": "探针",
    "report.reading.probes.text": (
        "探针从发出的特征中读取图像以外的信息，不与攻击竞争。每个数字旁都有什么都不看时的结果："
        "区间触及随机水平，表示这个攻击者没有发现任何东西。它给出的是泄露的下限。"
    ),
    "report.reading.probe.reidentification": "重新识别",
    "report.reading.probe.reidentification.text": (
        "某人有一批候选图像，并让客户端为每一张发出特征，然后问某个发出的特征来自其中哪一张。"
        "密钥噪声在此没有帮助：同一图像发出的特征相同。"
    ),
    "report.reading.probe.reidentification_by_picture": "凭重建图像重新识别",
    "report.reading.probe.reidentification_by_picture.text": (
        "同样的问题，但凭所列攻击恢复的图像来回答：哪个候选与它最接近，按像素，以及（若已给出）"
        "按同一数据上无防御网络的特征。误差很高的模糊图像仍可能认出原图。"
    ),
    "report.reading.probe.label_leakage": "标签泄露",
    "report.reading.probe.label_leakage.text": (
        "对没有服务器端网络的人来说，每类少量带标签的发出特征值多少。接近模型自身的准确率，"
        "说明任何人都能从发出的特征得知标签。"
    ),
    "report.reading.probe.attribute_leakage": "属性泄露",
    "report.reading.probe.attribute_leakage.text": (
        "能否从发出的特征判断某个属性，或图像所属的类别组。由类别可推出的内容，类别泄露时也随之泄露；"
        "均衡准确率对每个取值一视同仁。"
    ),
    "report.reading.probe.membership": "成员推断",
    "report.reading.probe.membership.text": (
        "发出的特征是否透露其图像曾用于训练。0.5 相当于抛硬币；死记训练图像的编码器会更高。"
    ),
    "report.reading.threat": "威胁模型 {name}",
    "report.commands": "命令",
    "report.commands.lead": (
        "重新得到这些运行和本页的命令：用各运行自己的配置，训练到旧文件夹旁的新文件夹，并按原样审计。"
    ),
    "report.commands.own": "对 {names}，审计只记下了名称：请给出你自己的套件文件，或在 Python 中给出威胁模型。",
    "report.commands.page": "本页",
    # settings
    "report.settings": "设置",
    "report.settings.alone": "审计时没有运行文件夹：这里不知道它是如何训练的。",
    "report.settings.run": "状态 {status}；设备 {device}{versions}。",
    "report.settings.unknown": "未知",
    "report.settings.images": "图像：{counts}。",
    "report.settings.audit": (
        "审计 {suite} v{version}，威胁模型 {threat}，种子 {seed}，权重 {weights}（指纹 {fingerprint}）："
        "{images} 张评估图像，攻击者有 {owned} 张图像，在 {device} 上用时 {seconds}。"
    ),
    "report.settings.reference": "特征空间的排名以 {reference} 为参考。",
    "report.settings.signal": (
        "z 各通道的方差与信道所加扰动之比（信噪比）：{least} 到 {most}，中位数 {median}{untouched}。"
    ),
    "report.settings.signal.untouched": "；{total} 个通道中有 {count} 个原样发出",
    "report.settings.signal.none": "z 的每个通道都原样发出：没有噪声。",
    "report.seed": "种子 {seed}",
}
"""The report's texts by key."""
