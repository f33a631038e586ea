"""The console of the commands, safe for other people's words."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.untrusted import printable


class PlainConsole(Console):
    """A console of rich that reads no markup out of text and lets only rich's own commands through
    to the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, **options)

    def __exit__(self, *caught: Any) -> None:
        """Whatever is shown is written here.

        Raises:
            UserError: it can't be, since the disk of the file that it goes to is full, say.
        """
        try:
            super().__exit__(*caught)
        except OSError as error:
            with suppress(OSError):  # what is left would be tried again at the end of the process
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
            self.begin_capture()  # else it would be tried again with the next line
            self.end_capture()
            why = error.strerror or error
            raise UserError(f"cannot write what is shown: {why}; send it elsewhere") from None

    def status(self, status: RenderableType, **options: Any) -> Status:
        """As rich does, without markup in the text."""
        return super().status(Text(status) if isinstance(status, str) else status, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does, with the text of every segment made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


console = PlainConsole(soft_wrap=True)
"""What commands say goes here, a line in one write: two threads may say something at once."""
