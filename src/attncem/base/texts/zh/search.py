"""What a search says: how its trials end, and what came out."""

from __future__ import annotations

SEARCH: dict[str, str] = {
    "search.refused": "{cell}：无法运行，因此计为失败：{reason}",
    "search.ended.done": "{cell}：{accuracy:.1f} %，攻击误差 {error:.4g}；已结束 {done} 次试验",
    "search.ended.failed": "{cell}：失败：{reason}；已结束 {done} 次试验",
    "search.methods.columns": "方法|试验|失败|分钟|未被超越",
    "search.levels.columns": "档位|方法|准确率 %|攻击误差|配置",
    "search.level": "{level}（相差 {points:g} 个百分点以内）",
    "search.undefended": (
        "无防御：{accuracy:.1f} %。所有数字都来自验证图像、单个种子；攻击误差是最强攻击下 MSE 与结构误差的几何平均。"
    ),
    "search.budget.equal": "各方法平分了 {budget} 的预算。",
    "search.budget.unequal": "{budget} 的预算用在了收益最大的地方：各方法所得份额不同。",
    "search.stopped": "预算用完之前停止；继续：attncem search {folder}",
    "search.folder": "各次试验，以及 search.json 中的完整结果：{folder}",
}
