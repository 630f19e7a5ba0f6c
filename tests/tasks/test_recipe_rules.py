"""Properties of recipes: tasks of one recipe are alike, and have nothing in common that one of them could change."""

from hypothesis import given
from hypothesis import strategies as st

from offload.events.event import Event
from offload.tasks.recipe import ClauseRecipe, Recipe, nothing
from offload.tasks.region import Inherited, Region
from offload.tasks.site import Site
from offload.tasks.task import Task
from offload.tasks.values import Values

SITE = Site("task", "f", "program.py:1", None)


def region():
    """Return a region of its own."""
    return Region(None, Inherited(0))


def made(number):
    """Return a task that has been made, with a value."""
    task = Recipe(SITE).make(region())
    task.value = number
    return task


def recipe_of(given):
    """Return a recipe with the given fields."""
    kind = ClauseRecipe if given["is_final"] else Recipe
    recipe = kind(SITE, given["body"], given["args"], given["kwargs"], given["label"], given["priority"])
    recipe.survives = given["survives"]
    if given["is_final"]:
        recipe.is_final = True
    return recipe


RECIPES = st.fixed_dictionaries(
    {
        "body": st.sampled_from([nothing, print, len]),
        "args": st.lists(st.integers(), max_size=2).map(tuple),
        "kwargs": st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(), min_size=1),
        "label": st.none() | st.just("name"),
        "priority": st.integers(0, 2),
        "survives": st.booleans(),
        "is_final": st.booleans(),
    }
)


@given(RECIPES)
def test_tasks_have_what_the_recipe_says(given):
    """Each field of a recipe is found in its tasks, each of which is another one, of its own region."""
    recipe = recipe_of(given)
    regions = [region(), region()]
    tasks = [recipe.make(frame) for frame in regions]
    assert tasks[0] is not tasks[1]
    for task, frame in zip(tasks, regions, strict=True):
        assert task.frame is frame
        assert task.inherited is frame.inherited
        assert task.construct is SITE
        for name, value in given.items():
            assert getattr(task, name) == value
        assert task.name == recipe.name == given["label"] or "f"


@given(RECIPES)
def test_plain_recipes_have_five_fields(given):
    """A recipe that calls itself plain can be made of its site, body, arguments and label alone."""
    recipe = recipe_of(given)
    bare = Recipe(recipe.site, recipe.body, recipe.args, recipe.kwargs, recipe.label).make(region())
    task = recipe.make(region())
    alike = all(getattr(task, name) == getattr(bare, name) for name in given)
    assert not recipe.is_plain or alike
    assert recipe.is_plain or given["is_final"] or not alike


@given(st.lists(st.integers(), min_size=1, max_size=4), st.data())
def test_values_are_those_of_the_run(numbers, data):
    """A task that is made again receives the values of the tasks that it is given, and else of those of the call."""
    before = [made(number) for number in numbers]
    recipe = ClauseRecipe(SITE, lambda *args: args, (None,) * len(numbers), None, None, 0)
    recipe.values = Values(tuple(range(len(numbers))), before)
    first = recipe.make(region())
    known = data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
    recipe.values.release(known)
    assert [task for task in recipe.values.tasks if task is not None] == [
        task for task, is_known in zip(before, known, strict=True) if not is_known
    ]
    sources = [made(number + 1) if is_known else None for number, is_known in zip(numbers, known, strict=True)]
    again = recipe.make(region(), sources)
    assert first.body(*first.args) == tuple(numbers)
    expected = tuple(number + is_known for number, is_known in zip(numbers, known, strict=True))
    assert again.body(*again.args) == expected


def test_an_empty_task_is_a_recipe_without_a_body():
    """The task of a recipe that has a site only does nothing, and is given nothing."""
    recipe = Recipe(SITE)
    task = recipe.make(region())
    assert type(task) is Task
    assert task.body(*task.args) is None
    assert recipe.is_plain


def test_an_event_serves_one_task_at_a_time():
    """The event of a recipe is attached to the task that is made, and to another once it is armed again."""
    recipe = ClauseRecipe(SITE, nothing, (), None, None, 0)
    recipe.event = event = Event()
    assert not recipe.is_plain
    for _ in range(2):
        task = recipe.make(region())
        assert task.event is event
        assert event.task is task
        event.fulfill()
        event.rearm()
