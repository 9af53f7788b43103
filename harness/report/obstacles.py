"""What keeps a gate shut, in few lines. Imports next to nothing: a gate sits in every launch."""

from collections.abc import Sequence

from harness.model.checklist import Obstacle

MAX_NAMED = 6


def obstacle_lines(obstacles: Sequence[Obstacle]) -> list[str]:
    """One line an obstacle with the command that removes it; those that differ in the item only, together."""
    return [f"  {names}: {why}\n      {remedy}" for names, why, remedy in grouped(obstacles)]


def grouped(obstacles: Sequence[Obstacle]) -> list[tuple[str, str, str]]:
    """Obstacles that differ in nothing but the item: names, reason, one command for all of them."""
    groups: dict[tuple[str, str], list[Obstacle]] = {}
    for obstacle in obstacles:
        neutral = obstacle.remedy.replace(f"--item {obstacle.item}", "--item ?")
        groups.setdefault((obstacle.why, neutral), []).append(obstacle)
    lines = []
    for (why, neutral), same in groups.items():
        ids = [obstacle.item for obstacle in same]
        shown = ids if len(ids) <= MAX_NAMED else [*ids[:MAX_NAMED], f"{len(ids)} in all"]
        remedy = neutral.replace("--item ?", " ".join(f"--item {id_}" for id_ in ids))
        lines.append((", ".join(shown), why, remedy))
    return lines
