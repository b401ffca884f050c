"""Threat models: an adversary's knowledge, images and observations. Every field has an effect (see docs/audit.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

from attncem.base.record import Record
from attncem.base.types import ConfigError

Auxiliary = Literal["train", "held_out", "published_infer", "outside", "none"]
Need = Literal["images", "queries", "encoder", "gradient", "channel", "server", "generator", "observed", "labels"]
"""Possible needs of an attack: own images; releases of them; the encoder's weights; its gradient; the channel's law;
the server's answers; noise of a generator whose seeds can be tried; the observed releases, without their images;
labels of the images.
"""


class Pictures(Record):
    """Pictures from elsewhere: the name of their folder or set, their number, and the SHA-256 of their pixels."""

    name: str
    count: int
    sha256: str


class ThreatModel(Record):
    """An adversary's knowledge, images and observations.

    ``auxiliary`` are the images it owns. ``may_query``: the true client releases any image that it submits.
    ``knows_encoder``: it has the encoder's weights; without queries it computes features by itself, and passes
    them through the channel if ``knows_channel``, which also gives it the channel itself. ``releases_per_input``:
    the number of releases it sees of each image; ``jitter``: the largest change of each pixel in grey levels, drawn
    again for each release, as in a video or a photograph that was encoded again.

    ``pictures`` are from elsewhere and have no labels: the adversary owns them instead of images of the model's data.
    ``images``: it owns only this many. ``queries``: the client answers only this many, each for one of its images,
    with as many releases as it sees of every image. ``sees_answers``: it sees what a client with a head answers itself.
    The last four are left out of files where they are None or false.
    """

    name: str
    knows_encoder: bool
    knows_channel: bool
    auxiliary: Auxiliary
    releases_per_input: int = 1
    may_query: bool = True
    jitter: int = 0
    pictures: Pictures | None = None
    images: int | None = None
    queries: int | None = None
    sees_answers: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data; audits of models without the later fields keep their names."""
        later = ("pictures", "images", "queries", "sees_answers")
        kept = super().to_dict().items()
        return {name: value for name, value in kept if name not in later or not (value is None or value is False)}

    @property
    def base(self) -> str:
        """The name of the threat model that was given fewer images, fewer queries, more releases or other pictures."""
        name = self._without_pictures.removesuffix(_ANSWERS)
        for mark, number in (("x", self.releases_per_input), ("q", self.queries), ("n", self.images)):
            name = name.removesuffix(f"-{mark}{number}")
        if name != "outside" or self.pictures is None:
            return name
        return "train" if self.knows_encoder else "query_only" if self.may_query or self.queries == 0 else "no_access"

    @property
    def is_raised(self) -> bool:
        """Whether it was given more releases than the threat model that it is based on."""
        return self._without_pictures.removesuffix(_ANSWERS).endswith(f"-x{self.releases_per_input}")

    @property
    def _without_pictures(self) -> str:
        return self.name.rpartition("+")[0] if self.pictures else self.name

    def missing(self, need: Need) -> bool:
        """Whether this adversary lacks the need."""
        return {
            "images": self.auxiliary == "none",
            "queries": not (self.may_query or self.knows_encoder),
            "encoder": not self.knows_encoder,
            "gradient": not self.knows_encoder,
            "channel": not self.knows_channel,
            "labels": self.auxiliary == "outside",
        }.get(need, False)


_ANSWERS = "-answers"
"""End of the name of an adversary that sees the answers of a client with a head."""
MOST_RELEASES = 65_536
MOST_QUERIES = 100_000
"""Most queries that can be limited: their answers are kept in memory."""
FEWEST_IMAGES = 20
"""Smallest number of images of an attacker that owns images, and of queries of one that is answered."""


def with_releases(threat: ThreatModel, releases: int | None) -> ThreatModel:
    """The same adversary with this number of releases of each image."""
    if releases is None or releases == threat.releases_per_input:
        return threat
    if not 1 <= releases <= MOST_RELEASES:
        raise ConfigError(f"releases={releases}: must be at least 1 and at most {MOST_RELEASES}")
    return replace(threat, name=f"{threat.name}-x{releases}", releases_per_input=releases)


def with_images(threat: ThreatModel, images: int | None) -> ThreatModel:
    """The same adversary with only this many images."""
    if images is None:
        return threat
    if threat.auxiliary == "none":
        raise ConfigError(f"attacker_images={images}: threat={threat.name} owns no images")
    if images < FEWEST_IMAGES:
        raise ConfigError(f"attacker_images={images}: at least {FEWEST_IMAGES} are needed")
    return replace(threat, name=f"{threat.name}-n{images}", images=images)


def with_queries(threat: ThreatModel, queries: int | None) -> ThreatModel:
    """The same adversary with answers to only this many queries; ConfigError where it needs no answer."""
    if queries is None:
        return threat
    if not (threat.knows_encoder or threat.may_query or queries):
        return threat
    if not (threat.knows_encoder or threat.may_query):
        raise ConfigError(f"queries={queries}: threat={threat.name} cannot query the client; take threat=query_only")
    if not threat.knows_encoder and queries and not FEWEST_IMAGES <= queries <= MOST_QUERIES:
        raise ConfigError(f"queries={queries}: must be 0, or at least {FEWEST_IMAGES} and at most {MOST_QUERIES}")
    limited = replace(threat, queries=queries, may_query=queries > 0)
    check_queries(limited)
    return replace(limited, name=f"{threat.name}-q{queries}")


def check_queries(threat: ThreatModel) -> None:
    """ConfigError where the number of queries contradicts the rest of a threat model."""
    if threat.queries is None:
        return
    if threat.knows_encoder:
        raise ConfigError(
            f"queries={threat.queries}: threat={threat.name} knows the encoder and computes releases itself; a number "
            "of queries limits an adversary without it: threat=query_only"
        )
    if threat.queries < 0 or threat.may_query != (threat.queries > 0):
        raise ConfigError(f"queries={threat.queries}: may_query of threat={threat.name} is {threat.may_query}")


def extended(
    threat: ThreatModel,
    *,
    releases: int | None = None,
    images: int | None = None,
    queries: int | None = None,
    sees_answers: bool = False,
) -> ThreatModel:
    """The same adversary with these numbers of own images, answered queries and releases; None: as it is.

    ``sees_answers``: it also sees the answers that a client with a head gives itself.
    """
    made = with_releases(with_queries(with_images(threat, images), queries), releases)
    return replace(made, name=made.name + _ANSWERS, sees_answers=True) if sees_answers else made


def with_pictures(threat: ThreatModel, pictures: Pictures) -> ThreatModel:
    """The same adversary with pictures from elsewhere instead of images of the model's data."""
    if threat.pictures is not None:
        if threat.pictures != pictures:
            raise ConfigError(f"attacker_data={pictures.name} has changed since the audit began")
        return threat
    base, mark, rest = threat.name.partition("-")
    base = "outside" if base == threat.auxiliary else base
    short = re.sub(r"[^A-Za-z0-9_.]+", "_", pictures.name)[:_LONGEST] or "pictures"
    return replace(threat, name=f"{base}{mark}{rest}+{short}", auxiliary="outside", pictures=pictures)


_LONGEST = 40
"""Largest length of a folder's name in the name of a threat model."""
THREATS: dict[str, ThreatModel] = {
    threat.name: threat
    for threat in (
        ThreatModel("train", knows_encoder=True, knows_channel=True, auxiliary="train"),
        ThreatModel("held_out", knows_encoder=True, knows_channel=True, auxiliary="held_out"),
        ThreatModel("published_infer", knows_encoder=True, knows_channel=True, auxiliary="published_infer"),
        ThreatModel("query_only", knows_encoder=False, knows_channel=False, auxiliary="train"),
        ThreatModel("no_access", knows_encoder=False, knows_channel=False, auxiliary="train", may_query=False),
    )
}
"""Threat models by name."""
