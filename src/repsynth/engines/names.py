"""Engines by name. A new engine is one file and one line here."""

from typing import Annotated

from msgspec import Meta

from repsynth.knobs import Knobs

ENGINES: dict[str, str] = {"local": "repsynth.engines.local:LocalEngine"}
"""Where each engine of this process is: "module:class", imported when it is needed."""

CLUSTERS: dict[str, str] = {
    "dask": "repsynth.engines.on_dask:connect",
    "spark": "repsynth.engines.on_spark:connect",
}
"""How each kind of cluster is reached: "module:function". It gives something that opens sources, for a while."""


class Place(Knobs, frozen=True):
    """Where sums are computed. It changes neither what is lost nor what comes out: no plan or release holds it."""

    engine: Annotated[
        str | None,
        Meta(
            description=f"where sums are computed: {', '.join([*ENGINES, *CLUSTERS])} (local)",
            extra={"metavar": "NAME"},
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Meta(
            description="a Dask scheduler's address (tcp://host:8786), or a Spark master's (spark://host:7077); "
            "without it, a local cluster is started",
            extra={"metavar": "URL"},
        ),
    ] = None
