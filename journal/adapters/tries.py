"""How often a model is asked within one call where the harness has a setting for the retries of the client below it.

The engine counts the tries, so that client asks once; a number that the user set for it is a number of ours.
"""

import msgspec

from journal.tools.model_retry import MODEL_RETRY
from journal.tools.retry import Retry


def retry_as_set(retries: int | None, otherwise: Retry | None) -> Retry | None:
    """The rule of a call whose settings ask for so many retries; None: they do not say, and `otherwise` holds."""
    if retries is None:
        return otherwise
    return msgspec.structs.replace(otherwise or MODEL_RETRY, tries=retries + 1) if retries > 0 else None
