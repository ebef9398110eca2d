"""`/console/check.json`: checks the syntax of a text, and locates the error, if any.

    {"ok": true}
    {"ok": false, "message": "expected a value", "position": 9}

Commands use the same parser, so they accept every text that passes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from server.admin.http.messages import HttpError, HttpRequest, HttpResponse, json_response
from server.expressions import ContextKind, ExpressionError, parse, parse_field, parse_order_by
from server.message_types.select_list import SelectionError, parse_selection

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.expressions.functions.registry import Functions

PATH: Final = ("console", "check.json")


class ExpressionCheckPage:
    """Checks texts as they are typed.

    Args:
        functions: the functions that texts may call.
        access: checks the requester's permissions.
    """

    def __init__(self, functions: Functions, access: AccessControl) -> None:
        self._access = access
        self._parsers: Mapping[str, Callable[[str], object]] = {
            "filter": lambda text: parse(text, ContextKind.FILTER, functions),
            "order_by": parse_order_by,
            "projection": lambda text: parse_field(text, ContextKind.PROJECTION, functions),
            "select": parse_selection,
        }

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Check the parameter `text` as a text of the kind in the parameter `kind`.

        Raises:
            HttpError: the requester may not read this path, or the kind is unknown.
        """
        await self._access.require_access(requester, "/" + "/".join(PATH).removesuffix(".json"))
        parser = self._parsers.get(request.query.get("kind", ""))
        if parser is None:
            raise HttpError(400, f"kind: expected one of {', '.join(self._parsers)}.")
        result = self._check_text(parser, request.query.get("text", ""))
        return json_response(result)

    @staticmethod
    def _check_text(parser: Callable[[str], object], text: str) -> dict[str, object]:
        try:
            parser(text)
        except ExpressionError as error:
            return {"ok": False, "message": error.message, "position": error.position}
        except SelectionError as error:
            return {"ok": False, "message": str(error), "position": 0}
        return {"ok": True}
