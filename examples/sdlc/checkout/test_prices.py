from prices import total


def test_prices_are_added_up() -> None:
    assert total([3, 4]) == 7


def test_a_discount_is_taken_off() -> None:
    assert total([3, 4], discount=2) == 5


def test_a_discount_never_makes_a_price_negative() -> None:
    assert total([3], discount=5) == 0
