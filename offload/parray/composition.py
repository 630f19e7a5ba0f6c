"""A type applied to digits: one function of all indices after another.

The digits of the type are *levels* on which an index stands, like the hands of a clock. A digit of the index moves them
by the same amount at each step, so its new step is the sum of the moves by the levels' steps, as long as none goes past
its end. A digit that does is split or cut there. See docs/design/theory.md, "Composition".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.parray.digits import MOST_CUTS, extremes, part_of, pieces, scaled, settled, split

if TYPE_CHECKING:
    from offload.parray.digits import Digit, Digits, Groups


def composed(base: int, levels: tuple[Digit, ...], given_base: int, given: Digits) -> tuple[int, Groups] | None:
    """Take digits, none of whose indices leaves the type, through a type's form."""
    if not levels:
        return base, [((count, 0, ()),) for count, *_ in given]
    if len(levels) == 1 and not levels[0][2]:
        step = levels[0][1]
        if step == 1:
            return base + given_base, [(digit,) for digit in given]
        return base + step * given_base, [((count, step * by, scaled(cuts, step)),) for count, by, cuts in given]
    if not given_base and len(given) == 1 and given[0][1] == 1 and not given[0][2]:
        count = 1
        for level in levels:
            count *= level[0]
        if count == given[0][0]:
            return base, [levels]
    return _Levels(base, levels, given_base).compose(given)


class _Levels:
    """The levels of a type: how far digits move on each, and from where."""

    def __init__(self, base: int, levels: tuple[Digit, ...], given_base: int) -> None:
        self.levels = levels  # the digits of the type, outermost first
        self.sizes: list[int] = []  # of one step of each level, in elements
        size = 1
        for count, *_ in reversed(levels):
            self.sizes.insert(0, size)
            size *= count
        self.at = self.places(given_base)  # the base's place on each level
        # the least and the greatest place to which the digits so far move, on each level
        self.low, self.high = list(self.at), list(self.at)
        # the number of digits that move on a level; a level whose digit has cuts takes one at most
        self.moved = [0] * len(levels)
        self.first = base  # the base of the type
        self.base = self.number(self.at)  # the base of the composition

    def places(self, index: int) -> list[int]:
        """Return where each level stands at an index."""
        return [index // size % count for (count, *_), size in zip(self.levels, self.sizes, strict=True)]

    def number(self, places: list[int]) -> int:
        """Return the number that the type gives with its levels at these places."""
        return self.first + sum(map(part_of, self.levels, places))

    def compose(self, given: Digits) -> tuple[int, Groups] | None:
        """Take digits through; None where a level would be left."""
        start = sum(place * size for place, size in zip(self.at, self.sizes, strict=True))
        groups: Groups = []
        for digit in given:
            found = self.digit(digit, start)
            if found is None:
                return None
            groups.append(found)
        for (count, _, cuts), low, high, moved in zip(self.levels, self.low, self.high, self.moved, strict=True):
            if low < 0 or high >= count or (cuts and moved > 1):
                return None
        return self.base, groups

    def digit(self, digit: Digit, start: int) -> tuple[Digit, ...] | None:
        """Take a digit through."""
        count, step, cuts = digit
        if count == 1 or not (step or cuts):
            return ((count, 0, ()),)
        before = list(self.low), list(self.high), list(self.moved)  # an attempt that fails changes nothing
        found = self.on_one_level(digit) if cuts else self.apart(digit, start)
        if found is None:
            self.low, self.high, self.moved = before
            found = self.carried(digit, start)
        return found

    def apart(self, digit: Digit, start: int) -> tuple[Digit, ...] | None:
        """Take a digit through that carries nothing, or of which the parts do not that it has where levels end."""
        count, step, _ = digit
        moves = [there - here for there, here in zip(self.places(start + step), self.at, strict=True)]
        if all(
            0 <= at + move * (count - 1) < level[0] for at, move, level in zip(self.at, moves, self.levels, strict=True)
        ):
            return self.move(count, moves)
        for size in reversed(self.sizes):
            if size > abs(step) and size % step == 0:
                halves = split(digit, size // abs(step))
                if halves is None or halves[0][0] == 1:
                    return None
                inner = self.apart(halves[1], start)
                outer = None if inner is None else self.apart(halves[0], start)
                return None if inner is None or outer is None else outer + inner
        return None

    def carried(self, digit: Digit, start: int) -> tuple[Digit, ...] | None:
        """Take a digit through that moves on one level and carries to those around it, as one that is cut there."""
        # No other digit may move on these levels. The cuts are where the level begins again, and where it is cut
        # itself.
        count, step, cuts = digit
        steps = (step, *(jump for _, jump in cuts))
        k = next(k for k, size in enumerate(self.sizes) if not any(by % size for by in steps))
        level_count, level_step, level_cuts = self.levels[k]
        move = step // self.sizes[k]
        if move <= 0 or any(self.moved[: k + 1]):
            return None
        begins = (0, *(begin for begin, _ in level_cuts))
        places: set[int] = set()
        for first, end, jump in pieces(count, cuts):
            at = (start + step * first + jump) // self.sizes[k] % level_count
            n_times = (at + move * (end - 1 - first)) // level_count + 1
            if n_times * len(begins) + len(places) > MOST_CUTS:
                return None
            places.add(first)
            places.update(
                place
                for n in range(n_times)
                for begin in begins
                if first < (place := first - (at - n * level_count - begin) // move) < end
            )
        new = []
        for place in sorted(places - {0}):
            here, before = (self.number(self.places(start + part_of(digit, at))) for at in (place, place - 1))
            new.append((place, here - before - move * level_step))
        for level in range(k + 1):
            self.low[level], self.high[level], self.moved[level] = 0, self.levels[level][0] - 1, 1
        return settled((count, move * level_step, tuple(new)))

    def move(self, count: int, moves: list[int]) -> tuple[Digit, ...] | None:
        """Return the digit that moves so far on each level at each of its steps."""
        step = 0
        cuts: dict[int, int] = {}  # where a level with cuts is passed: the jump, by the value of the digit
        for k, move in enumerate(moves):
            if not move:
                continue
            _, level_step, level_cuts = self.levels[k]
            self.moved[k] += 1
            if move > 0:
                self.high[k] += move * (count - 1)
            else:
                self.low[k] += move * (count - 1)
            step += move * level_step
            if level_cuts and move < 0:
                return None
            for start, jump in level_cuts:
                place = -((self.at[k] - start) // move)
                if 0 < place < count:
                    cuts[place] = cuts.get(place, 0) + jump
        return ((count, step, tuple(sorted(cuts.items()))),)

    def on_one_level(self, digit: Digit) -> tuple[Digit, ...] | None:
        """Take a digit with cuts through that stays on one level, the outermost that it may be counted on."""
        count, step, cuts = digit
        steps = (step, *(jump for _, jump in cuts))
        k = next(k for k, size in enumerate(self.sizes) if not any(by % size for by in steps))
        (level_count, level_step, level_cuts), size = self.levels[k], self.sizes[k]
        low, high = (self.at[k] + part // size for part in extremes(0, [digit]))
        if level_cuts or low < 0 or high >= level_count:
            return None
        self.moved[k] += 1
        self.low[k] += low - self.at[k]
        self.high[k] += high - self.at[k]
        return ((count, step // size * level_step, tuple((start, jump // size * level_step) for start, jump in cuts)),)
