"""The console of the commands, safe for other people's words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from lens_ref.rlvr.untrusted import printable


class PlainConsole(Console):
    """A console of rich that reads no markup out of text and lets only rich's own commands through
    to the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, **options)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """As rich does, without markup in the text."""
        return super().status(Text(status) if isinstance(status, str) else status, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does, with the text of every segment made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))
