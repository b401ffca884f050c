"""The headline of docs/results.md and of both READMEs: two sentences, and a table with a verdict for each setting."""

from __future__ import annotations

from dataclasses import dataclass

from attncem.config.options.campaigns import load_campaign
from attncem.config.options.probes import ProbeOptions
from attncem.config.options.suites import load_suite
from attncem.records.study.equal import PairEffect
from evidence.claim import Claim, ClaimResult, find
from evidence.source import Source, stem
from evidence.words import ratio, table

TEXTS = {
    "en": {
        "front_end_only": (
            "On CIFAR-10 at equal accuracy, a front end leaves the strongest attack {gain} times the error (MSE) of "
            "the CEM baseline; the gain is the front end's, because attention shows none over kmeans behind the same "
            "front end."
        ),
        "attention_differs": (
            "On CIFAR-10 at equal accuracy, a front end leaves the strongest attack {gain} times the error (MSE) of "
            "the CEM baseline; attention leaves {added} times the error of kmeans behind the same front end."
        ),
        "unequal": (
            "On CIFAR-10 the errors cannot be corrected to equal accuracy, so the table shows them as measured."
        ),
        "none": "There is no claim on CIFAR-10 yet: `attncem campaign run claim-cifar10` measures it.",
        "elsewhere_worse": "On Tiny-ImageNet, front end and attention together are worse than the baseline.",
        "elsewhere_better": "On Tiny-ImageNet, front end and attention together are better than the baseline.",
        "elsewhere_open": "On Tiny-ImageNet, front end and attention together show no difference to the baseline.",
        "columns": "compared with the CEM baseline (kmeans)|seeds|accuracy, points|MSE, times|structure, times|verdict",
        "claim-cifar10 c": "CIFAR-10, VGG11-BN: front end + attention",
        "claim-cifar10 c b": "the same, compared with front end + kmeans",
        "claim-cifar10 d": "the same with a thin, deep client of equal cost",
        "claim-tiny-imagenet": "Tiny-ImageNet, ResNet-20: front end + {part}",
        "claim-lfw": "faces (LFW, balanced accuracy): front end + {part}",
        "claim-demo": "embedded images, no GPU, other σ: front end + {part}",
        "b": "kmeans",
        "c": "attention",
        "more_private": "more private",
        "less_private": "**less private**",
        "no_difference_shown": "no difference shown",
        "better": "better, too few seeds for a test",
        "worse": "**worse**, too few seeds for a test",
        "open": "open, too few seeds for a test",
        "measured": " (accuracy not corrected)",
        "notes": (
            "Times the attacker's error, 95 % interval over seeds; above 1 is more private. Errors are at equal "
            "accuracy unless the verdict says otherwise; verdicts come from exact permutation tests. The attacker "
            "knows client and channel, owns the training images and sees one release of each image. Suites and files: "
            "{suites}."
        ),
        "doubt": " (attack not converged in {doubtful} of {runs} runs)",
        "omitted": " without {count} of its rows",
        "more": "[All results]({to_page}).",
    },
    "zh": {
        "front_end_only": (
            "在 CIFAR-10 上、准确率相同时，加前端后最强攻击的误差（MSE）为 CEM 基线的 {gain} 倍；"
            "增益来自前端：在同一前端之后，注意力与 kmeans 相比未显示增益。"
        ),
        "attention_differs": (
            "在 CIFAR-10 上、准确率相同时，加前端后最强攻击的误差（MSE）为 CEM 基线的 {gain} 倍；"
            "在同一前端之后，注意力的误差为 kmeans 的 {added} 倍。"
        ),
        "unequal": "在 CIFAR-10 上，误差无法校正到相同准确率，表中为实测值。",
        "none": "CIFAR-10 上尚无结论：由 `attncem campaign run claim-cifar10` 测量。",
        "elsewhere_worse": "在 Tiny-ImageNet 上，前端加注意力比基线更差。",
        "elsewhere_better": "在 Tiny-ImageNet 上，前端加注意力比基线更好。",
        "elsewhere_open": "在 Tiny-ImageNet 上，前端加注意力与基线相比未显示差异。",
        "columns": "与 CEM 基线（kmeans）相比|种子数|准确率差（百分点）|MSE 倍数|结构误差倍数|结论",
        "claim-cifar10 c": "CIFAR-10，VGG11-BN：前端 + 注意力",
        "claim-cifar10 c b": "同上，与前端 + kmeans 相比",
        "claim-cifar10 d": "同上，换用计算量相同的细而深的客户端",
        "claim-tiny-imagenet": "Tiny-ImageNet，ResNet-20：前端 + {part}",
        "claim-lfw": "人脸（LFW，平衡准确率）：前端 + {part}",
        "claim-demo": "内置图像，无需 GPU，σ 另选：前端 + {part}",
        "b": "kmeans",
        "c": "注意力",
        "more_private": "更私密",
        "less_private": "**更不私密**",
        "no_difference_shown": "未显示差异",
        "better": "更好，种子太少，不足以检验",
        "worse": "**更差**，种子太少，不足以检验",
        "open": "未定，种子太少，不足以检验",
        "measured": "（准确率未校正）",
        "notes": (
            "攻击者误差的倍数，括号内为按种子计算的 95 % 区间；大于 1 表示更私密。除非结论另有说明，"
            "误差均在相同准确率下比较；结论来自精确置换检验。攻击者知道客户端与信道，拥有训练图像，对每张图像只看到一次发出的特征。"
            "套件与文件：{suites}。"
        ),
        "doubt": "（{runs} 次运行中有 {doubtful} 次最强攻击未收敛）",
        "omitted": "（未用其中 {count} 行）",
        "more": "[全部结果]({to_page})。",
    },
}
"""The sentences by language; the values in braces come from the result files."""


@dataclass(frozen=True)
class Claims:
    """The claim on CIFAR-10, on other data, and on the embedded images."""

    claim: Claim
    elsewhere: tuple[Claim, ...]
    small: Claim


@dataclass(frozen=True)
class Row:
    """One line of the table: a part of a claim compared with another part."""

    key: str
    claim: ClaimResult
    part: str
    other: str = "a"

    @property
    def effects(self) -> dict[str, PairEffect]:
        """Every measure, at equal accuracy if that is known and not extrapolated."""
        pair = self.part, self.other
        return self.claim.measured[pair] if self.as_measured else self.claim.judged(*pair)

    @property
    def as_measured(self) -> bool:
        """Whether the errors are not corrected to equal accuracy."""
        corrected = {self.part, self.other} <= self.claim.equal.keys()
        return not corrected or (self.part == "d" and not self.claim.slope.covers(self.claim.arms["d"].accuracy))

    @property
    def verdict(self) -> str:
        """The result of the tests on MSE and structure error; with too few seeds, the direction of their intervals."""
        effects = [self.effects[name] for name in ("mse", "structure")]
        answers = {effect.answer for effect in effects}
        if "too_few_seeds" not in answers:
            order = ("less_private", "no_difference_shown", "more_private")
            return next(answer for answer in order if answer in answers)
        ends = [(effect.comparison.ratio_low or 0.0, effect.comparison.ratio_high or 0.0) for effect in effects]
        if any(high < 1 for _, high in ends):
            return "worse"
        return "better" if all(low > 1 for low, _ in ends) else "open"


def headline(source: Source, claims: Claims, language: str, *, to_results: str, to_page: str | None) -> str:
    """Two sentences, the table, the meaning of its numbers and their source files."""
    texts, rows = TEXTS[language], _rows(source, claims)
    gap = "" if language == "zh" else " "
    parts = [gap.join(filter(None, (_on_cifar(source, claims.claim, language), _elsewhere(rows, language))))]
    if rows:
        parts += [table(texts["columns"].split("|"), [_cells(row, language) for row in rows])]
        parts += [_notes(rows, language, to_results)]
    if to_page:
        parts.append(texts["more"].format(to_page=to_page))
    return "\n\n".join(parts)


def _rows(source: Source, claims: Claims) -> list[Row]:
    """The comparisons whose arms have all their seeds."""
    rows = []
    claim = find(source, claims.claim)
    if claim is not None and claim.whole and not claim.table.unfinished:
        name = claims.claim.campaign
        rows = [Row(f"{name} c", claim, "c"), Row(f"{name} c b", claim, "c", "b")]
        rows += [Row(f"{name} d", claim, "d")] if "d" in claim.arms else []
    for other in (*claims.elsewhere, claims.small):
        claim = find(source, other)
        if claim is not None and _all_seeds(claim):
            rows.append(Row(other.campaign, claim, "c" if claim.whole else "b"))
    return rows


def _all_seeds(claim: ClaimResult) -> bool:
    """Whether arm b has runs, and no run of the measured arms is missing."""
    names = tuple(arm.name for arm in claim.arms.values())
    return "b" in claim.arms and not any(cell.startswith(names) for cell in claim.table.unfinished or ())


def _on_cifar(source: Source, claims: Claim, language: str) -> str:
    texts, claim = TEXTS[language], find(source, claims)
    if claim is None or not claim.whole or claim.table.unfinished:
        return texts["none"]
    if not {"b", "c"} <= claim.equal.keys():
        return texts["unequal"]
    gain, added = claim.judged("b", "a")["mse"], claim.judged("c", "b")["mse"]
    key = "front_end_only" if added.answer == "no_difference_shown" else "attention_differs"
    return texts[key].format(gain=f"{gain.comparison.ratio:.2f}", added=f"{added.comparison.ratio:.2f}")


def _elsewhere(rows: list[Row], language: str) -> str:
    """The sentence about Tiny-ImageNet, if attention was measured there."""
    verdict = next((row.verdict for row in rows if (row.key, row.part) == ("claim-tiny-imagenet", "c")), None)
    directions = {"more_private": "better", "less_private": "worse", "no_difference_shown": "open"}
    return TEXTS[language][f"elsewhere_{directions.get(verdict, verdict)}"] if verdict else ""


def _cells(row: Row, language: str) -> list[str]:
    texts, arms = TEXTS[language], row.claim.arms
    points = f"{100 * (arms[row.part].accuracy - arms[row.other].accuracy):+.2f}"
    errors = [ratio(row.effects[name]) for name in ("mse", "structure")]
    errors = errors if language == "en" else [error.replace(" to ", "–") for error in errors]
    verdict = texts[row.verdict] + (texts["measured"] if row.as_measured else "")
    seeds = min(len(arm.seeds) for arm in arms.values())
    return [texts[row.key].format(part=texts.get(row.part)), str(seeds), points, *errors, verdict]


def _notes(rows: list[Row], language: str, to_results: str) -> str:
    """The meaning of the numbers, and their source files by suite."""
    files: dict[str, list[str]] = {}
    for campaign, claim in {row.claim.arms[row.part].campaign: row.claim for row in rows}.items():
        link = f"[{stem(campaign)}]({to_results}/{stem(campaign)}.json){_doubt(claim, campaign, language)}"
        files.setdefault(_suite(claim, language), []).append(link)
    suites = "; ".join(f"{suite} {' · '.join(links)}" for suite, links in files.items())
    return TEXTS[language]["notes"].format(suites=suites)


def _doubt(claim: ClaimResult, campaign: str, language: str) -> str:
    """The number of runs of a campaign in which the audit calls the strongest attack unreliable; empty if none."""
    arms = [arm for arm in claim.arms.values() if arm.campaign == campaign]
    doubtful, runs = sum(arm.unreliable() for arm in arms), sum(len(arm.seeds) for arm in arms)
    return TEXTS[language]["doubt"].format(doubtful=doubtful, runs=runs) if doubtful else ""


def _suite(claim: ClaimResult, language: str) -> str:
    """The suite of a claim's audits, and the number of its attacks (no probes) that the campaign leaves out."""
    audit = load_campaign(claim.claim.campaign).audits[0]
    attacks = [name for name, row in load_suite(audit.suite).suite.rows.items() if not isinstance(row, ProbeOptions)]
    count = len(set(attacks) - set(audit.rows()))
    omitted = TEXTS[language]["omitted"].format(count=count) if count else ""
    return f"`{claim.table.audits[0].suite}`{omitted}"
