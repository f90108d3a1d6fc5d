"""What stands behind a door: its store, who comes through it, and whom it tells of new work."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

import structlog
from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.requests import Request

from oncefence.app.problems import RequestRefused
from oncefence.domain.command import Receipt
from oncefence.domain.limits import Limits
from oncefence.storage.phases.authenticate import Caller, authenticate
from oncefence.storage.phases.find_dispatch import find_live_dispatch
from oncefence.storage.phases.find_work import WorkRef
from oncefence.storage.sealing import KeyRing
