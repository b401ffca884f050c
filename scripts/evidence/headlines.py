"""The headline of the page and of both READMEs: an item a setting, with seeds, adversary, intervals and files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from attncem.campaigns.claims import Arm, Effect, arms_of
from attncem.config.options.campaigns import load_campaign
from attncem.config.options.suites import load_suite
from evidence import front
from evidence.claim import Claim, Found, find, verdicts
from evidence.source import Source, stem

SAID = {
    "en": {
        "claim": (
            "**CIFAR-10, VGG11-BN cut 4, σ = 0.1, {seeds} seeds an arm:** {at}, attention behind a front end "
            "leaves the strongest attack of `{suite}`{less} {mse} the MSE and {structure} the structure error of "
            "the baseline's kmeans; SSIM is {ssim} as high. {goals} {share} The adversary knows client and "
            "channel, owns the training images and sees each image released once. 95 % intervals over seeds, exact "
            "permutation test; [`results/{file}.json`]({to_results}/{file}.json)."
        ),
        "earlier": (
            "**No claim yet** (`attncem campaign run claim-cifar10` measures it). What there is, CIFAR-10, "
            "VGG11-BN cut 4, σ = 0.1, {seeds} seeds an arm: attention behind a front end is {points} points of "
            "accuracy from the baseline's kmeans and leaves the strongest attack {mse} the MSE and {structure} "
            "the structure error; kmeans behind the same front end, {points_b} points from it, {mse_b} and "
            "{structure_b}. So few seeds cannot show that a method wins. The adversary knows client and channel, "
            "owns the training images and sees each image released once; 95 % intervals over seeds, not at equal "
            "accuracy; [`results/{file}.json`]({to_results}/{file}.json)."
        ),
        "nothing": "Nothing is measured on CIFAR-10 yet: `attncem campaign run claim-cifar10`.",
        "small": (
            "**On the embedded images, without a GPU, {seeds} seeds an arm:** {points} points of accuracy from the "
            "baseline's kmeans, attention behind a front end, with a σ of its own, leaves the strongest attack of "
            "`{suite}` (not converged in {doubtful} of {runs} runs) {mse} the MSE and {structure} the "
            "structure error; over kmeans behind the same front end, {points_b} points from it, {mse_b} and "
            "{structure_b}; [`results/{file}.json`]({to_results}/{file}.json)."
        ),
        "elsewhere": (
            "**{data}, {seeds} seeds an arm{few}:** {points} points of accuracy from the baseline's kmeans, {what} "
            "behind the same front end leaves the strongest attack{doubt} {mse} the MSE and {structure} the structure "
            "error, as measured{equally}{missing}; [`results/{file}.json`]({to_results}/{file}.json)."
        ),
        "claim-tiny-imagenet": "Tiny-ImageNet, ResNet-20",
        "claim-lfw": "Faces (LFW people, balanced accuracy)",
        "part-b": "kmeans",
        "part-c": "attention",
        "equally": ", and at equal accuracy {mse} and {structure}",
        "missing": "; attention there is not measured yet",
        "few": ", too few for a test",
        "doubt": " (not converged in {doubtful} of {runs} runs)",
        "share": (
            "The gain is the front end's: kmeans behind it leaves {mse_b} the MSE, attention {mse_c} as much as that, "
            "no difference shown."
        ),
        "share_differs": "Kmeans behind the same front end leaves {mse_b} the MSE, attention {mse_c} as much as that.",
        "thin": (
            "**Behind a thin, deep client of the same cost:** {points} points of accuracy from the baseline's kmeans, "
            "the same leaves {mse} the MSE and {structure} the structure error, as measured{equally}; "
            "[`results/{file}.json`]({to_results}/{file}.json)."
        ),
        "front": (
            "**The front, the same setting, {seeds} seeds each, too few for a test:** at {at} % accuracy each of "
            "{count} surrogates, kmeans and attention among them, leaves {mse} times the MSE behind a front end and "
            "{structure} times the structure error (attack not converged in {doubtful} of {runs} runs); "
            "[`results/{file}.json`]({to_results}/{file}.json)."
        ),
        "span": "{low} to {high}",
        "less": " (without {count} of its rows)",
        "equal": "at equal accuracy",
        "measured": "{points} points of accuracy from it",
        "reached": "All goals of the claim are reached.",
        "missed": "{count} of {all} goals of the claim are not reached.",
        "times": "{ratio} times ({low} to {high})",
        "once": "{ratio} times",
        "more": "[All results]({to_page}).",
    },
    "zh": {
        "claim": (
            "**CIFAR-10，VGG11-BN 拆分位置 4，σ = 0.1，每组 {seeds} 个随机种子**：{at}，"
            "前端加注意力使 `{suite}`{less} 中最强攻击的 MSE 为基线 kmeans 的 {mse}，"
            "结构误差为 {structure}，SSIM 为 {ssim}。{goals}{share}"
            "攻击者知道客户端与信道，拥有训练图像，对每张图像只看到一次发出的特征。"
            "95 % 区间按种子计算，精确置换检验；"
            "[`results/{file}.json`]({to_results}/{file}.json)。"
        ),
        "earlier": (
            "**目前还不能下结论**（由 `attncem campaign run claim-cifar10` 测量）。"
            "已有结果：CIFAR-10，VGG11-BN 拆分位置 4，σ = 0.1，每组 {seeds} 个随机种子："
            "前端加注意力的准确率与基线 kmeans 相差 {points} 个百分点，"
            "最强攻击的 MSE 为其 {mse}，结构误差为 {structure}；"
            "同一前端加 kmeans 相差 {points_b} 个百分点，分别为 {mse_b}和 {structure_b}。"
            "种子太少，不足以证明某种方法更好。"
            "攻击者知道客户端与信道，拥有训练图像，对每张图像只看到一次发出的特征；"
            "95 % 区间按种子计算，准确率未对齐；"
            "[`results/{file}.json`]({to_results}/{file}.json)。"
        ),
        "nothing": "CIFAR-10 上尚无测量：`attncem campaign run claim-cifar10`。",
        "small": (
            "**内置图像，无需 GPU，每组 {seeds} 个随机种子**："
            "前端加注意力（σ 另选）的准确率与基线 kmeans 相差 {points} 个百分点，"
            "`{suite}` 中最强攻击（{runs} 次运行中有 {doubtful} 次未收敛）的 MSE 为其 {mse}，结构误差为 {structure}；"
            "与同一前端加 kmeans 相比，相差 {points_b} 个百分点，分别为 {mse_b}和 {structure_b}；"
            "[`results/{file}.json`]({to_results}/{file}.json)。"
        ),
        "elsewhere": (
            "**{data}，每组 {seeds} 个随机种子{few}**："
            "同一前端加{what}的准确率与基线 kmeans 相差 {points} 个百分点，"
            "最强攻击{doubt}的 MSE 实测为其 {mse}，结构误差为 {structure}{equally}{missing}；"
            "[`results/{file}.json`]({to_results}/{file}.json)。"
        ),
        "claim-tiny-imagenet": "Tiny-ImageNet，ResNet-20",
        "claim-lfw": "人脸（LFW people，平衡准确率）",
        "part-b": " kmeans ",
        "part-c": "注意力",
        "equally": "，在相同准确率下分别为 {mse}和 {structure}",
        "missing": "；该数据上的注意力尚未测量",
        "few": "，不足以检验",
        "doubt": "（{runs} 次运行中有 {doubtful} 次未收敛）",
        "share": "增益来自前端：同一前端加 kmeans 的 MSE 为基线的 {mse_b}，注意力又为其 {mse_c}，未显示差异。",
        "share_differs": "同一前端加 kmeans 的 MSE 为基线的 {mse_b}，注意力又为其 {mse_c}。",
        "thin": (
            "**换用计算量相同的细而深的客户端**：准确率与基线 kmeans 相差 {points} 个百分点，实测 MSE 为其 {mse}，"
            "结构误差为 {structure}{equally}；[`results/{file}.json`]({to_results}/{file}.json)。"
        ),
        "front": (
            "**前沿，设置相同，每种 {seeds} 个随机种子，不足以检验**：准确率 {at} % 时，"
            "包括 kmeans 与注意力在内的 {count} 种代理损失，加前端后 MSE 各为原来的 {mse} 倍，结构误差为 {structure} 倍"
            "（{runs} 次运行中有 {doubtful} 次攻击未收敛）；[`results/{file}.json`]({to_results}/{file}.json)。"
        ),
        "span": "{low} 至 {high}",
        "less": "（未用其中 {count} 行）",
        "equal": "在相同准确率下",
        "measured": "准确率相差 {points} 个百分点",
        "reached": "全部目标均已达到。",
        "missed": "{all} 个目标中有 {count} 个未达到。",
        "times": "{ratio} 倍（{low} 至 {high}）",
        "once": "{ratio} 倍",
        "more": "[全部结果]({to_page})。",
    },
}
"""The sentences by language; what stands in braces is filled from the files."""


@dataclass(frozen=True)
class Claims:
    """The claim, what was measured before it, the claim on other data, and in small."""

    claim: Claim
    earlier: Claim
    elsewhere: tuple[Claim, ...]
    small: Claim


def headline(source: Source, claims: Claims, language: str, *, to_results: str, to_page: str | None) -> str:
    """What the claim came to; before it has its seeds, what is known and that it is no claim. Then the others."""
    items = [
        *_on_cifar(source, claims, language, to_results),
        _front(source, language, to_results),
        *(_elsewhere(source, claim, language, to_results) for claim in claims.elsewhere),
        _in_small(source, claims.small, language, to_results),
    ]
    more = "\n\n" + SAID[language]["more"].format(to_page=to_page) if to_page else ""
    return "\n".join(f"- {item}" for item in items if item) + more


def _on_cifar(source: Source, claims: Claims, language: str, to_results: str) -> list[str]:
    said, found = SAID[language], find(source, claims.claim)
    if found is not None and is_told(found):
        values = _claimed(found, language) | {"share": _share(found, language)}
        return [said["claim"].format(**values, to_results=to_results), _thin(found, language, to_results)]
    if known := [one for one in (find(source, claims.earlier), found) if one is not None and one.whole]:
        most = max(known, key=lambda one: _seeds(one.arms.values()))
        return [said["earlier"].format(**_compared(most, language, ("b", "a")), to_results=to_results)]
    return [said["nothing"]]


def _front(source: Source, language: str, to_results: str) -> str:
    """What a front end does for every surrogate at one accuracy; empty while the front lacks runs."""
    said, found, table = SAID[language], front.sides(source), source.table(front.CAMPAIGN)
    if found is None or table is None or table.unfinished:
        return ""
    arms, times = arms_of(table), {name: found.times(name) for name in ("mse", "structure")}
    spans = {name: said["span"].format(low=f"{min(own):.2f}", high=f"{max(own):.2f}") for name, own in times.items()}
    return said["front"].format(
        **spans,
        **_converged(arms),
        seeds=_seeds(arms),
        at=f"{100 * front.AT:g}",
        count=len(found.without),
        file=stem(front.CAMPAIGN),
        to_results=to_results,
    )


def _elsewhere(source: Source, claim: Claim, language: str, to_results: str) -> str:
    """The claim on other data, or the front end's part of it; empty while an arm that is there lacks seeds."""
    said, found = SAID[language], find(source, claim)
    if found is None or not _with_all_seeds(found):
        return ""
    part = "c" if found.whole else "b"
    values = _over_a(found, language, part) | _converged(found.arms.values())
    values |= {"few": "" if is_told(found) else said["few"], "data": said[claim.campaign], "what": said[f"part-{part}"]}
    doubt = said["doubt"].format(**values) if values["doubtful"] else ""
    missing = "" if found.whole else said["missing"]
    further = {"doubt": doubt, "equally": _equally(found, part, language), "missing": missing}
    return said["elsewhere"].format(**values, **further, to_results=to_results)


def _equally(found: Found, part: str, language: str) -> str:
    """The same at the accuracy of a, where a slope reaches there."""
    own = found.over(found.equal).get((part, "a"))
    return SAID[language]["equally"].format(**_errors(own, language)) if own else ""


def _with_all_seeds(found: Found) -> bool:
    """Whether no run is missing of the arms that there are, the front end's at the least."""
    there = tuple(arm.name for arm in found.arms.values())
    return "b" in found.arms and not any(cell.startswith(there) for cell in found.table.unfinished or ())


def _in_small(source: Source, claim: Claim, language: str, to_results: str) -> str:
    """The claim on the embedded images, as it was measured; empty while it cannot be told."""
    found = find(source, claim)
    if found is None or not is_told(found):
        return ""
    values = _compared(found, language, ("c", "b")) | _converged(found.arms.values())
    suite = found.table.audits[0].suite or "quick"
    return SAID[language]["small"].format(**values, suite=suite, to_results=to_results)


def _converged(arms: Collection[Arm]) -> dict[str, object]:
    """How many runs there are, and of how many the audit calls its strongest attack unreliable."""
    return {"doubtful": sum(arm.unreliable for arm in arms), "runs": sum(len(arm.seeds) for arm in arms)}


def is_told(found: Found) -> bool:
    """Whether the campaign is complete, with so many seeds that a test can say something."""
    if found.table.unfinished or not found.whole:
        return False
    return all(one.answer != "too_few_seeds" for one in found.judged("c", "a").values())


def _seeds(arms: Collection[Arm]) -> int:
    """Seeds that every arm has."""
    return min(len(arm.seeds) for arm in arms)


def _claimed(found: Found, language: str) -> dict[str, object]:
    said, own, goals = SAID[language], found.judged("c", "a"), verdicts(found)
    missed = sum(not one.reached for one in goals)
    told = said["missed"].format(count=missed, all=len(goals)) if missed else said["reached"]
    return {
        "seeds": _seeds(found.arms.values()),
        "at": said["equal"] if "c" in found.equal else said["measured"].format(points=_points(found, "c", "a")),
        "suite": found.table.audits[0].suite or "standard",
        "less": said["less"].format(count=left_out) if (left_out := _left_out(found.claim.campaign)) else "",
        **{name: _times(own[name], language) for name in ("mse", "structure", "ssim")},
        "goals": told,
        "file": stem(found.claim.campaign),
    }


def _left_out(campaign: str) -> int:
    """How many rows of its suite a campaign leaves out."""
    audit = load_campaign(campaign).audits[0]
    return len(load_suite(audit.suite).suite.rows) - len(audit.rows())


def _share(found: Found, language: str) -> str:
    """What of the gain is the front end's, and what attention adds to it; at equal accuracy where that is known."""
    gain, added = found.judged("b", "a")["mse"], found.judged("c", "b")["mse"]
    key = "share" if added.answer == "no_difference_shown" else "share_differs"
    return SAID[language][key].format(mse_b=_times(gain, language), mse_c=_times(added, language))


def _thin(found: Found, language: str, to_results: str) -> str:
    """Arm d over a, as measured, and at equal accuracy where nothing is extrapolated; empty while it is not there."""
    if "d" not in found.arms:
        return ""
    values = _over_a(found, language, "d") | {"file": stem(found.origin["d"])}
    covered = found.slope.covers(found.arms["d"].accuracy)
    equally = _equally(found, "d", language) if covered else ""
    return SAID[language]["thin"].format(**values, equally=equally, to_results=to_results)


def _compared(found: Found, language: str, other: tuple[str, str]) -> dict[str, object]:
    """C over a as it was measured, and another pair of parts, whose values end in _b."""
    own = found.over(found.arms)[other]
    return {
        **_over_a(found, language, "c"),
        "points_b": _points(found, *other),
        **{f"{name}_b": told for name, told in _errors(own, language).items()},
    }


def _over_a(found: Found, language: str, part: str) -> dict[str, object]:
    """A part over a as it was measured."""
    own = found.over(found.arms)[part, "a"]
    return {
        "seeds": _seeds(found.arms.values()),
        "points": _points(found, part, "a"),
        **_errors(own, language),
        "file": stem(found.claim.campaign),
    }


def _errors(own: Mapping[str, Effect], language: str) -> dict[str, str]:
    """How many times as much of both errors."""
    return {name: _times(own[name], language) for name in ("mse", "structure")}


def _points(found: Found, part: str, other: str) -> str:
    return f"{100 * (found.arms[part].accuracy - found.arms[other].accuracy):+.2f}"


def _times(effect: Effect, language: str) -> str:
    found, said = effect.comparison, SAID[language]
    ratio = f"{found.ratio:.2f}"
    if found.ratio_low is None or found.ratio_high is None:
        return said["once"].format(ratio=ratio)
    return said["times"].format(ratio=ratio, low=f"{found.ratio_low:.2f}", high=f"{found.ratio_high:.2f}")
