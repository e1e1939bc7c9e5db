"""A teacher's answers for the student's classes: its columns are matched by the names of the classes."""

from collections.abc import Sequence

from phalanx.errors import UserError

SHOWN = 4


def match_columns(teacher: Sequence[str], student: Sequence[str], name: str) -> tuple[list[int] | None, list[str]]:
    """Which column of the teacher answers for each class of the student, None if all do in order; notes for the user.

    A teacher may know more classes. The softmax of the selected logits is its answer given that the image shows one of
    the student's classes.
    """
    if list(teacher) == list(student):
        return None, []
    place = {each: column for column, each in enumerate(teacher)}
    missing = [each for each in student if each not in place]
    if missing:
        raise UserError(
            f"the teacher {name} does not know {len(missing):,} of the {len(student):,} classes: {_some(missing)}",
            why=f"classes are matched by name; it knows {_some(teacher)}",
            remedy="train a teacher on the same classes; or, if they are the same under other names, name them alike "
            "(data.class_names)",
        )
    more = len(teacher) - len(student)
    note = f"the teacher {name} knows {more:,} more classes: its answers are taken among the {len(student):,} here"
    if not more:
        note = f"the classes of the teacher {name} are in another order: its answers were matched by name"
    return [place[each] for each in student], [note]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
