import pytest

from gpudoctor.record import KeyedRecord, Record, replace


class Point(Record):
    x: int
    y: int = 0


class Named(KeyedRecord):
    name: str
    size: int | None = None


class Bigger(Named):
    extra: str = "e"


def test_positions_names_and_defaults():
    assert (Point(1).x, Point(1).y, Point(1, y=2).y) == (1, 0, 2)
    assert (Bigger(name="a").extra, Bigger(name="a", size=3).size) == ("e", 3)


@pytest.mark.parametrize("args, values", [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 1, "z": 1})])
def test_wrong_values_are_refused(args, values):
    with pytest.raises(TypeError):
        Point(*args, **values)


def test_records_are_immutable_values():
    point = Point(1, 2)
    with pytest.raises(AttributeError):
        point.x = 3
    with pytest.raises(AttributeError):
        del point.x
    assert point == Point(1, 2) and hash(point) == hash(Point(1, 2)) and point != Point(1, 3)
    assert replace(point, y=5) == Point(1, 5) and point.y == 2
    assert Point(1, 2) != Named(name="x")
