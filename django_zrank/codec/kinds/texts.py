"""Text, UUIDs and IP addresses: facets and keys, which can't be ranked."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F
from django.db.models.functions import Collate
from django.utils.ipv6 import clean_ipv6_address

from .kind import Kind, Schema

__all__ = ["Address", "Identifier", "Text"]


class Text(Kind):
    fields = (models.CharField, models.FilePathField, models.TextField)
    called = "text"
    is_facet = is_key = is_text = True

    @staticmethod
    def parse(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not text")
        if not value.isascii():
            value.encode()  # raises for lone surrogates, which neither databases nor Redis accept
        return value if type(value) is str else str.__str__(value)  # the value of an enum

    def collation(self, connection: Any) -> str | None:
        """To the default collations of MariaDB and MySQL, "A", "a" and "a " are equal."""
        if connection.vendor == "mysql":
            return "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
        exact = {"postgresql": "C", "sqlite": "BINARY"}
        return exact.get(connection.vendor) if self.field.db_collation else None

    def comparable(self, path: str, connection: Any) -> Any:
        collation = self.collation(connection)
        return Collate(F(path), collation) if collation else F(path)


class Identifier(Kind):
    """UUIDs."""

    fields = (models.UUIDField,)
    called = "UUID"
    is_facet = is_key = converts = True
    pattern = "[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}"
    exact = UUID

    @staticmethod
    def parse(value: Any) -> UUID:
        return value if isinstance(value, UUID) else UUID(str(value))

    @property
    def schema(self) -> Schema:
        return {"type": "string", "format": "uuid"}


class Address(Kind):
    """IP addresses."""

    fields = (models.GenericIPAddressField,)
    called = "IP address"
    is_facet = is_key = True
    pattern = "[0-9a-fA-F:.]+(?:%[0-9a-zA-Z.-]+)?"

    def parse(self, value: Any) -> str:
        address, slash, bits = str(value).partition("/")
        # PostgreSQL's inet ends with the length of the prefix; a shorter one is a network.
        if slash and bits != ("128" if ":" in address else "32"):
            raise ValueError(f"{value!r} is a network, not an address")
        if ":" not in address:
            return str(IPv4Address(address))
        try:
            return clean_ipv6_address(address, self.field.unpack_ipv4)
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from None

    def facet_text(self, value: Any) -> str:
        # Where a column of addresses is text, another program may have spelled one differently, or stored other text.
        with suppress(ValidationError):
            value = self.field.to_python(value)
        return str(value)

    def parse_facet(self, given: Any) -> Any:
        value = self.parse(super().parse_facet(given))  # to_python() takes any text
        self.field.run_validators(value)
        return value

    @property
    def schema(self) -> Schema:
        protocol = self.field.protocol.lower()
        formats = ["ipv4", "ipv6"] if protocol == "both" else [protocol]
        found = [{"type": "string", "format": one, "maxLength": self.field.max_length} for one in formats]
        return found[0] if len(found) == 1 else {"anyOf": found}
