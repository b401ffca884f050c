"""The headline of docs/results.md and of both READMEs: two sentences, and a table of at most six settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from attncem.records.leaks import LIMIT, say_leak
from attncem.records.statistics import Interval, difference_apart
from attncem.reporting import wording
from evidence import lean, selective, unsure
from evidence.claim import Claim, find
from evidence.pairs import Pair, pairs, unreliable
from evidence.server import gain, interval_of, share
from evidence.source import Setting, Source, stem
from evidence.words import table

TEXTS = {
    "en": {
        "front_end_only": (
            "On CIFAR-10 at equal accuracy, a front end leaves the strongest attack {gain} times the error (MSE) of "
            "the CEM baseline; attention shows no gain over kmeans behind the same front end."
        ),
        "attention_differs": (
            "On CIFAR-10 at equal accuracy, a front end leaves the strongest attack {gain} times the error (MSE) of "
            "the CEM baseline; attention leaves {added} times the error of kmeans behind the same front end."
        ),
        "unequal": (
            "On CIFAR-10 the errors cannot be corrected to equal accuracy, so the table shows them as measured."
        ),
        "none": "There is no claim on CIFAR-10 yet: `attncem campaign run claim-cifar10` measures it.",
        "no_server": (
            "At the baseline's cost none of {count} models with a server is shown to be more accurate than the client "
            "alone, which releases nothing."
        ),
        "server": (
            "At the baseline's cost {count} of {all} models with a server are shown to be more accurate than the "
            "client alone, which releases nothing."
        ),
        "columns": "setting|seeds|accuracy %|client alone %|attacker's error, % of a guess|nats ≤|verdict",
        "claim a": "CIFAR-10, VGG11-BN: the CEM baseline (kmeans)",
        "claim c": "the same: front end + attention",
        "lean": "CIFAR-10, lean client of {budget}: {method}",
        "claim-tiny-imagenet": "Tiny-ImageNet, ResNet-20: front end + {part}",
        "selective-cifar10": "CIFAR-10, client of {budget} that sends {share} %: {method}",
        "selective-demo": "embedded images, client of {budget} that sends {share} %: {method}",
        "b": "kmeans",
        "c": "attention",
        "baseline": "the baseline",
        "more_private": "more private than the baseline",
        "less_private": "**less private** than the baseline",
        "no_difference_shown": "no difference to the baseline shown",
        "better": "more private than the baseline, too few seeds for a test",
        "worse": "**less private** than the baseline, too few seeds for a test",
        "open": "open, too few seeds for a test",
        "measured": "accuracy not corrected",
        "one_seed": " (one seed)",
        "more": "the server adds {points} points",
        "less": "the client alone is more accurate",
        "nothing": "no gain of the server shown",
        "doubt": "attack not reliable in {doubtful} of {runs} runs",
        "notes": (
            "The attacker knows client and channel, owns the training images and sees one release. 100 %: the "
            "strongest attack's MSE is that of a guess that knows only the label. *Client alone*: the best network of "
            "the same cost that releases nothing. Nats: 95 % limit on what one release tells. Exact tests at equal "
            "accuracy compare with the baseline. Files: {files}."
        ),
        "page": "[All results]({to_page}).",
        "comma": "; ",
    },
    "zh": {
        "front_end_only": (
            "在 CIFAR-10 上、准确率相同时，加前端后最强攻击的误差（MSE）为 CEM 基线的 {gain} 倍；"
            "在同一前端之后，注意力与 kmeans 相比未显示增益。"
        ),
        "attention_differs": (
            "在 CIFAR-10 上、准确率相同时，加前端后最强攻击的误差（MSE）为 CEM 基线的 {gain} 倍；"
            "在同一前端之后，注意力的误差为 kmeans 的 {added} 倍。"
        ),
        "unequal": "在 CIFAR-10 上，误差无法校正到相同准确率，表中为实测值。",
        "none": "CIFAR-10 上尚无结论：由 `attncem campaign run claim-cifar10` 测量。",
        "no_server": (
            "客户端计算量与基线相同时，{count} 个带服务器的模型均未显示比客户端单独运行更准确，而后者不发出任何特征。"
        ),
        "server": (
            "客户端计算量与基线相同时，{all} 个带服务器的模型中有 {count} 个显示比客户端单独运行更准确；"
            "后者不发出任何特征。"
        ),
        "columns": "设置|种子数|准确率 %|仅客户端 %|攻击误差占猜测误差的 %|nats ≤|结论",
        "claim a": "CIFAR-10，VGG11-BN：CEM 基线（kmeans）",
        "claim c": "同上：前端 + 注意力",
        "lean": "CIFAR-10，精简客户端 {budget}：{method}",
        "claim-tiny-imagenet": "Tiny-ImageNet，ResNet-20：前端 + {part}",
        "selective-cifar10": "CIFAR-10，客户端 {budget}，只发送 {share} %：{method}",
        "selective-demo": "内置图像，客户端 {budget}，只发送 {share} %：{method}",
        "b": "kmeans",
        "c": "注意力",
        "baseline": "基线",
        "more_private": "比基线更私密",
        "less_private": "比基线**更不私密**",
        "no_difference_shown": "与基线相比未显示差异",
        "better": "比基线更私密，种子太少，不足以检验",
        "worse": "比基线**更不私密**，种子太少，不足以检验",
        "open": "未定，种子太少，不足以检验",
        "measured": "准确率未校正",
        "one_seed": "（一个种子）",
        "more": "服务器带来 {points} 个百分点",
        "less": "仅客户端更准确",
        "nothing": "未显示服务器带来增益",
        "doubt": "{runs} 次运行中有 {doubtful} 次攻击不可靠",
        "notes": (
            "攻击者知道客户端与信道，拥有训练图像，只看到一次发出的特征。"
            "100 % 表示最强攻击的 MSE 等于只知道标签的猜测。*仅客户端*：计算量相同、不发出任何特征的最佳网络。"
            "nats：一次发出的特征所泄露信息的 95 % 上限。"
            "与基线的比较为相同准确率下的精确检验。文件：{files}。"
        ),
        "page": "[全部结果]({to_page})。",
        "comma": "；",
    },
}
"""The sentences by language; the values in braces come from the result files."""
MOST = 6
"""Rows of the table."""
SAME_COST = 0.01
"""Relative difference of multiply-accumulates up to which two clients cost the same."""


@dataclass(frozen=True)
class Claims:
    """The claim on CIFAR-10, on other data, and on the embedded images."""

    claim: Claim
    elsewhere: tuple[Claim, ...]
    small: Claim

    @property
    def all(self) -> tuple[Claim, ...]:
        """All of them, that on CIFAR-10 first."""
        return self.claim, *self.elsewhere, self.small


@dataclass(frozen=True)
class Line:
    """One setting: ``key`` and ``values`` make its name, ``verdicts`` its verdict, both in a language.

    ``single``: the nats are those of a single run with the same options.
    """

    key: str
    campaign: str
    seeds: int
    accuracy: Interval
    share: float
    nats: str = ""
    single: bool = False
    alone: Interval | None = None
    verdicts: Sequence[tuple[str, dict[str, str]]] = ()
    values: dict[str, str] = field(default_factory=dict)

    def all_verdicts(self) -> Iterator[tuple[str, dict[str, str]]]:
        """What the tests say of the defence, then whether the server is worth it."""
        yield from self.verdicts
        if self.alone is not None:
            points = difference_apart(self.accuracy, self.alone).mean
            yield gain(self.accuracy, self.alone), {"points": f"{100 * points:.1f}"}


def headline(source: Source, claims: Claims, language: str, *, to_results: str, to_page: str | None) -> str:
    """Two sentences, the table, the meaning of its numbers and their source files."""
    texts, rows = TEXTS[language], lines(source, claims)
    gap = "" if language == "zh" else " "
    parts = [gap.join(filter(None, (_on_cifar(source, claims.claim, language), _server(source, language))))]
    if rows:
        parts += [table(texts["columns"].split("|"), [_cells(row, language) for row in rows], last=1)]
        names = dict.fromkeys(stem(row.campaign) for row in rows)
        files = " · ".join(f"[{name}]({to_results}/{name}.json)" for name in names)
        parts += [texts["notes"].format(files=files)]
    if to_page:
        parts.append(texts["page"].format(to_page=to_page))
    return "\n\n".join(parts)


def lines(source: Source, claims: Claims) -> list[Line]:
    """The settings of the table whose arms have all their seeds."""
    return [*_claimed(source, claims.claim), *_lean(source), *_elsewhere(source, claims.elsewhere), *_unsure(source)][
        :MOST
    ]


def _claimed(source: Source, claims: Claim) -> Iterator[Line]:
    """The baseline, and the front end with attention behind it, on CIFAR-10."""
    for pair in pairs(source, [claims], "c", "a"):
        alone = _same_cost(source, pair.claim.arms["a"])
        nats = _single(source, pair.claim.arms["a"])
        yield replace(_line("claim a", pair, "a"), alone=alone, nats=nats, single=True, verdicts=[("baseline", {})])
        yield replace(_line("claim c", pair, "c"), alone=alone, verdicts=_verdicts(pair))


def _line(key: str, pair: Pair, part: str) -> Line:
    """A part of a claim, with the share of the error that a guess from the label has."""
    arm = pair.claim.arms[part]
    errors = zip(arm.values("mse"), arm.values("mse", row="class mean"), strict=False)
    percent = 100 * fmean(error / guess for error, guess in errors)
    return Line(key, pair.campaign, len(arm.seeds), interval_of(arm.values("accuracy")), percent)


def _verdicts(pair: Pair) -> list[tuple[str, dict[str, str]]]:
    """What the tests say, whether errors are not corrected, and the runs whose strongest attack is unreliable."""
    doubtful, runs = unreliable(pair.claim)
    verdicts: list[tuple[str, dict[str, str]]] = [(pair.verdict, {})]
    if pair.as_measured:
        verdicts.append(("measured", {}))
    if doubtful:
        verdicts.append(("doubt", {"doubtful": str(doubtful), "runs": str(runs)}))
    return verdicts


def _same_cost(source: Source, arm: Setting) -> Interval | None:
    """The client alone with as many multiply-accumulates as an arm's client."""
    made = source.table(arm.campaign)
    macs = {cell.client_macs for cell in made.cells if cell.arm == arm.name} if made else set()
    near = [
        alone
        for budget, alone in lean.chosen(source).items()
        if any(count and abs(count / budget - 1) <= SAME_COST for count in macs)
    ]
    return near[0] if near else None


def _single(source: Source, arm: Setting) -> str:
    """The limit of a single run with the same network, penalty and channel, where the arm itself has none."""
    like = arm.config
    same = [
        one
        for one in lean.measured(source)
        if (one.arm.config.model, one.arm.config.surrogate, one.arm.weight) == (like.model, like.surrogate, arm.weight)
    ]
    return lean.leak(LIMIT, same[0]) if same else ""


def _lean(source: Source) -> Iterator[Line]:
    """The recommended lean client of the largest and of the smallest budget."""
    references = lean.chosen(source)
    for budget in dict.fromkeys((max(references), min(references))) if references else ():
        one = lean.recommended(source, budget)
        if one is not None:
            values = {"budget": wording.count(budget), "method": lean.method(one)}
            accuracy, nats = one.accuracy, lean.leak(LIMIT, one)
            alone = references[budget]
            yield Line("lean", lean.CAMPAIGN, 1, accuracy, share(one), nats, alone=alone, values=values)


def _elsewhere(source: Source, claims: Sequence[Claim]) -> Iterator[Line]:
    """Tiny-ImageNet: attention behind the front end, or the front end alone as long as that is not measured."""
    for claim in (one for one in claims if one.campaign in TEXTS["en"]):
        result = find(source, claim)
        part = "c" if result is not None and result.whole else "b"
        for pair in pairs(source, [claim], part, "a"):
            yield replace(_line(claim.campaign, pair, part), verdicts=_verdicts(pair), values={"part": part})


def _unsure(source: Source) -> Iterator[Line]:
    """Of the clients that send only some images, the one with the least limit at the smallest budget.

    Those that are shown to be more accurate than the client alone come first.
    """
    for campaign in unsure.campaigns(source)[:1]:
        group = unsure.groups(source, campaign)[0]
        arms = sorted(group.selective, key=lambda arm: (not group.worth(arm), unsure.limit_of(arm)))
        for arm in arms[:1]:
            sent = fmean(selective.over_seeds(arm, lambda cell: selective.sending("share", cell)))
            values = {
                "budget": wording.count(group.budget),
                "share": f"{100 * sent:.0f}",
                "method": f"{unsure.kind(arm)} {arm.weight:g}",
            }
            alone = interval_of(group.alone) if group.alone else None
            accuracy, percent = interval_of(arm.values("accuracy")), 100 * _left(arm)
            nats = say_leak(LIMIT, unsure.limit_of(arm))
            yield Line(campaign, campaign, len(arm.seeds), accuracy, percent, nats, alone=alone, values=values)


def _left(arm: Setting) -> float:
    """The share of a blind guess's error that the strongest attack leaves on images that are sent."""
    return fmean(
        error / guess
        for cell in arm.cells
        if (error := selective.score(cell, "mse")) is not None and (guess := selective.guess(cell)) is not None
    )


def _on_cifar(source: Source, claims: Claim, language: str) -> str:
    texts, claim = TEXTS[language], find(source, claims)
    if claim is None or not claim.whole or claim.table.unfinished:
        return texts["none"]
    if not {"b", "c"} <= claim.equal.keys():
        return texts["unequal"]
    gained, added = claim.judged("b", "a")["mse"], claim.judged("c", "b")["mse"]
    key = "front_end_only" if added.answer == "no_difference_shown" else "attention_differs"
    return texts[key].format(gain=f"{gained.comparison.ratio:.2f}", added=f"{added.comparison.ratio:.2f}")


def _server(source: Source, language: str) -> str:
    """Whether any model of the baseline's cost is more accurate than the client alone."""
    rows, references = lean.measured(source), lean.chosen(source)
    if not rows or not references:
        return ""
    largest = max(references)
    there = [one for one in rows if one.budget == largest]
    count = sum(gain(one.accuracy, references[largest]) == "more" for one in there)
    texts, all_of = TEXTS[language], str(len(there))
    return texts["server"].format(count=count, all=all_of) if count else texts["no_server"].format(count=all_of)


def _cells(row: Line, language: str) -> list[str]:
    texts = TEXTS[language]
    values = {key: texts.get(value, value) if key == "part" else value for key, value in row.values.items()}
    verdicts = [texts[key].format(**more) for key, more in row.all_verdicts()]
    return [
        texts[row.key].format(**values),
        str(row.seeds),
        f"{100 * row.accuracy.mean:.1f}",
        f"{100 * row.alone.mean:.1f}" if row.alone else "–",
        f"{row.share:.0f}",
        f"{row.nats}{texts['one_seed'] if row.single else ''}" if row.nats else "–",
        texts["comma"].join(verdicts),
    ]
