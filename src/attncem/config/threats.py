"""Threat models: an adversary's knowledge, images and observations. Every field has an effect (see docs/audit.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from attncem.base.record import Record
from attncem.base.types import ConfigError

Auxiliary = Literal["train", "held_out", "published_infer", "none"]
Need = Literal["images", "queries", "encoder", "gradient", "channel", "server", "generator", "observed", "labels"]
"""Possible needs of an attack: own images; releases of them; the encoder's weights; its gradient; the channel's law;
the server's answers; noise of a generator whose seeds can be tried; the observed releases, without their images;
labels of the images.
"""


class ThreatModel(Record):
    """An adversary's knowledge, images and observations.

    ``auxiliary`` are the images it owns. ``may_query``: the true client releases any image that it submits.
    ``knows_encoder``: it has the encoder's weights; without queries it computes features by itself, and passes
    them through the channel if ``knows_channel``, which also gives it the channel itself. ``releases_per_input``:
    the number of releases it sees of each image; ``jitter``: the largest change of each pixel in grey levels, drawn
    again for each release, as in a video or a photograph that was encoded again.
    """

    name: str
    knows_encoder: bool
    knows_channel: bool
    auxiliary: Auxiliary
    releases_per_input: int = 1
    may_query: bool = True
    jitter: int = 0

    def missing(self, need: Need) -> bool:
        """Whether this adversary lacks the need."""
        return {
            "images": self.auxiliary == "none",
            "queries": not (self.may_query or self.knows_encoder),
            "encoder": not self.knows_encoder,
            "gradient": not self.knows_encoder,
            "channel": not self.knows_channel,
        }.get(need, False)


MOST_RELEASES = 65_536


def with_releases(threat: ThreatModel, releases: int | None) -> ThreatModel:
    """The same adversary with this number of releases of each image."""
    if releases is None or releases == threat.releases_per_input:
        return threat
    if not 1 <= releases <= MOST_RELEASES:
        raise ConfigError(f"releases={releases}: must be at least 1 and at most {MOST_RELEASES}")
    return replace(threat, name=f"{threat.name}-x{releases}", releases_per_input=releases)


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
