def total(prices: list[int], discount: int = 0) -> int:
    raise NotImplementedError
