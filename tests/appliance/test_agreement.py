"""Which answers agree: as models really write them, and as nobody should."""

from __future__ import annotations

import warnings
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.plan.agreement import NONE, clusters, elect, key, short
from conductor.plan.conclusion import READ_CHARS, SHORT_CHARS, ends

LONG = "First we look at what is given, then we add it all up step by step, and so we find: "
POEM = (
    "Roses are red,\nviolets are blue,\nsugar is sweet,\nand so are the days that I spend with you."
)
PROGRAM = "```python\ndef add(a, b):\n    return a + b\n\nassert add(1, 2) == {}\n```"
RECIPE = "1. Chop the onions.\n2. Fry them gently for {} minutes.\n3. Serve them with fresh bread."

# -- keys ---------------------------------------------------------------------------------------

MATHEMATICS = {
    "18": [
        "18",
        "**18**",
        "18.",
        "$18",
        "18 dollars",
        "18.00",
        "#### 18",
        "16 - 3 - 4 = 9 eggs are left.\nShe makes 9 * $2 = $18 every day at the market.\n#### 18",
        "16 - 3 - 4 = 9 eggs are left. She makes 9 * $2 = **$18** every day at the market there.",
        "Janet sells 16 - 3 - 4 = 9 eggs a day.\n\nTherefore, she makes 9 x 2 = 18 dollars a day.",
        r"Thus the total is $\boxed{18}$.",
        r"\boxed{18\text{ dollars}}",
        r"We get \[ 9 \cdot 2 = 18. \] The final answer is: $\boxed{\$18}$",
        "The answer is 18, since nine eggs at two dollars each are left.",
        "**Final Answer:** 18",
        "Final Answer: The final answer is $18$. I hope it is correct.",
        "Die Antwort lautet 18.",
        "Janet makes $18 every day.",
        '{"reasoning": "9 eggs at $2", "answer": "18"}',
        '```json\n{"reasoning": "9 eggs at $2", "answer": 18}\n```',
        "<answer>18</answer>",
        "x = 18",
        "Solving for x we divide both sides by two, as was shown above for y:\n\n$$x = 18$$",
        "So we have $x = 18$\n\nLet me know if you would like to see another way to solve it!",
        "**Solution:**\n\nLet x be the number of eggs.\n\nThen x = 9, and 9 * 2 = 18.",
        "Answer: Let us think step by step. There are nine eggs.\n\nNine times two dollars is 18.",
        LONG + "18",
        LONG + "x = 18.",
    ],
    "0.5": ["1/2", "0.50", ".5", "½", r"\frac{1}{2}", r"$\dfrac12$", r"\boxed{\frac 24}", "2/4"],
    "1.5": ["1 1/2", "1½", r"1\frac{1}{2}", "3/2", "1.50"],
    "-0.75": [r"-\frac{3}{4}", r"\frac{-3}{4}", "-0.75", "−0.75", "-3/4"],
    "1/3": ["1/3", r"\frac{1}{3}", "2/6", r"\boxed{\tfrac{1}{3}}"],
    "1000": [
        "1,000",
        "1 000",
        "1000.0",
        r"1{,}000",
        r"1\,000",
        "$1,000",
        "about 1000",
        "1 thousand",
    ],
    "2000000": ["2 million", "$2 million", "2,000,000", "2 million dollars"],
    "50": ["50%", "50 %", r"50\%", "50 percent", "50"],
    "90": [r"90^\circ", "90°", "90 degrees", r"\boxed{90^{\circ}}", "٩٠"],
    "0": ["0", "-0", "0.0", "0/7"],
    "2sqrt(3)": [r"2\sqrt{3}", "2√3", "2*sqrt(3)", "2 sqrt(3)", r"$2\sqrt3$", r"\boxed{2\sqrt{3}}"],
    "44sqrt(3)/3": [r"\frac{44\sqrt{3}}{3}", r"44\sqrt{3}/3", r"\boxed{\dfrac{44\sqrt{3}}{3}}"],
    "25π": [r"25\pi", "25π", "25 π"],
    "x^2+1": ["x^2 + 1", "x² + 1", r"x^{2}+1", "f(x) = x^2+1", "y = x^2 + 1"],
    "(3, 5)": ["(3, 5)", "(3,5)", r"\left(3, 5\right)", r"\boxed{(3,5)}"],
    "{1, 2}": [r"\{1, 2\}", r"\boxed{\{2,1\}}", "{1,2}"],
    "∞": [r"\infty", "∞", r"$\infty$"],
    "9" * 40: ["9" * 40, ",".join(["9", *["999"] * 13])],
}
CODE = {
    "['a', 'b']": [
        "['a', 'b']",
        '["a","b"]',
        "`['a', 'b']`",
        "[ANSWER]\nassert f('ab') == ['a', 'b']\n[/ANSWER]",
        'The text is split.\n\n```python\nassert f(\'ab\') == ["a", "b"]\n```',
        "Going through the loop by hand, we append one letter a time.\n```\n['a', 'b']\n```",
        '{"reasoning": "letters", "answer": ["a", "b"]}',
        '{"reasoning": "letters", "answer": "[\'a\', \'b\']"}',
        "Going through the loop we append a letter each time.\n\nThe output is: `['a', 'b']`"
        "\n\nAnswer: `['a', 'b']`",
    ],
    "{'a': 1, 'b': [None]}": ["{'a': 1, 'b': [None]}", '{"a":1,"b":[None]}'],
    "'ABC'": ["'ABC'", "assert f('abc') == 'ABC'", 'assert f("abc") == "ABC"'],
    "'5'": ["'5'", "assert f(5) == '5'"],
    "''": ["''", "assert f('') == ''"],
    "abc": ["abc", "'abc'", '"abc"', "ABC", "`abc`"],
    "true": ["True", "true", "assert f(1) == True", "```\nTrue\n```"],
    "[]": ["[]", "assert f([1 == 2]) == []"],
    "(1,)": ["(1,)", "assert f(1) == (1, )"],
    "{'a', 'b'}": ["{'b', 'a'}", "{'a', 'b'}"],
    "ls -La": ["Use this:\n```bash\nls -La\n```"],
}
CHOICES = {
    "b": [
        "B",
        "(B)",
        "B.",
        "b)",
        "**B**",
        "B) Paris",
        "B. Paris",
        "(B) Paris",
        "**B. Paris**",
        "Option B",
        "The answer is B.",
        "The correct answer is (B) Paris.",
        "The correct option is **B**.",
        "The correct answer is:\n\n**B) Paris**\n\nExplanation: Lyon is not the capital; Paris is.",
        "Answer: B\n\nA is wrong, since Lyon is no capital. C and D are not even in the country.",
        "The answer is B. This is because Paris has been the capital for centuries.",
        r"\boxed{B}",
        r"\boxed{\text{(B)}}",
        "Paris is the capital of France, as everybody knows who went to school there.\n\n(B)",
    ],
    "yes": [
        "Yes",
        "Yes.",
        "**Yes**",
        "Yes, 17 is prime.",
        "Yes, because 17 has no divisors but itself and one.",
        "The answer is yes.",
        "Answer: Yes",
    ],
    "no": ["No.", "no", "No, it is not.", "The answer is no, because it can be divided by three."],
    "true": ["True", "TRUE.", "True. It was so in 1990."],
}
WORDS = {
    "paris": [
        "Paris",
        "paris.",
        "**Paris**",
        '"Paris"',
        "“Paris.”",
        "PARIS",
        "Ｐａｒｉｓ",
        "The capital of France is Paris.",
        "The answer is Paris.",
    ],
    "j. k. rowling": ["J. K. Rowling", "The answer is J. K. Rowling."],
    "c. s. lewis": ["C. S. Lewis", "The answer is **C. S. Lewis**."],
    "st. petersburg": ["St. Petersburg", "The answer is St. Petersburg."],
    "mitochondria": ["The mitochondria", "mitochondria", "The answer is the mitochondria."],
    "infinitely many": ["infinitely many", "Infinitely many.", r"\text{infinitely many}"],
    "7 pm": ["7 pm", "7 PM", "The answer is 7 pm."],
    "3 may": ["3 May", "3 May."],
    "strasse": ["Straße", "STRASSE"],
    "東京": ["東京", "「東京」".strip("「」"), "**東京**"],
    "👍": ["👍", "👍!"],
}
TABLE = [
    pytest.param(text, expected, id=f"{expected[:20]}-{place}")
    for group in (MATHEMATICS, CODE, CHOICES, WORDS)
    for expected, texts in group.items()
    for place, text in enumerate(texts)
]


@pytest.mark.parametrize(("answer", "expected"), TABLE)
def test_answers_that_conclude_with_the_same_have_one_key(answer: str, expected: str) -> None:
    assert key(answer) == expected
    assert short(answer)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(["'ABC'", "'abc'", "'Abc'"], id="case in code"),
        pytest.param(["'5'", "5"], id="text and number in code"),
        pytest.param(["'True'", "True"], id="text and truth in code"),
        pytest.param(["'a'", "'a.'", "'a '"], id="what marks off in prose counts in code"),
        pytest.param(["[1]", "1", "(1,)", "{1}"], id="one item and a collection of it"),
        pytest.param(["[1, 2]", "[2, 1]"], id="order in a list"),
        pytest.param(["(0, 1]", "[0, 1)", "(0, 1)", "[0, 1]"], id="intervals"),
        pytest.param(["7 pm", "7 am", "7"], id="times of day"),
        pytest.param(["3 May", "3 June", "3 dozen", "3 million"], id="words that tell"),
        pytest.param(["5th", "5", "5x"], id="letters that belong to it"),
        pytest.param(["10²", "102", "10^3"], id="powers"),
        pytest.param(["1/(2x)", "x/2", "1/2"], id="quotients"),
        pytest.param(["1.5", "15", "-1.5"], id="points and signs"),
        pytest.param(["C. S. Lewis", "C. P. Snow", "C"], id="initials are no choice"),
        pytest.param(["J. K. Rowling", "J. R. R. Tolkien"], id="nor do they end a sentence"),
        pytest.param(["St. Petersburg", "St. Louis"], id="nor does a saint"),
        pytest.param(["1" + "0" * 60, "1" + "0" * 59 + "1"], id="numbers longer than a float"),
        pytest.param(["0." + "1" * 40, "0." + "1" * 39 + "2"], id="decimals longer than a float"),
        pytest.param(["1000", "1.000,00", "1,00"], id="marks of other countries"),
    ],
)
def test_answers_that_conclude_otherwise_have_other_keys(answers: list[str]) -> None:
    assert len({key(answer) for answer in answers}) == len(answers)
    assert all(key(answer) for answer in answers)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "  \n\t ",
        "?!",
        "***",
        POEM,
        "Yes! Here is a poem for you:\n\n" + POEM,
        PROGRAM.format(3),
        "```python\ndef f(x):\n    y = 5",
        RECIPE.format(10),
        RECIPE.format(10) + "\n\n**Enjoy your meal, and come back soon!**",
        "The war of 1914-1918 is called the First World War. It began in Sarajevo on 28 June, and "
        "it took the lives of 17 million people.",
        "First boil the water, then add the rice and salt. Finally, let it rest for 30 minutes.",
        "Answer: Let us think step by step. First we look at what is given, then at what is asked, "
        "and then we find that it depends.",
        "**Solution:**\n\nFirst we look at what is given.\n\nThen it cannot be decided, "
        "since more than one thing would fit.",
        "The Eiffel Tower is a lattice tower on the Champ de Mars in Paris. It was built by 1889.",
        "The answer to your question depends on many things, such as where you live, what you like "
        "and how much time you have.",
        "Dear Ms Smith,\n\nthank you for your letter of 3 May. We will send the 15 parts next week."
        "\n\nKind regards,\nJohn",
        LONG + "no number",
        "\\boxed{"
        + "{" * 10
        + " a box that never closes, in an answer that somebody has cut off, so "
        "that nothing of it can be trusted",
    ],
)
def test_prose_programs_and_nothing_have_no_key(answer: str) -> None:
    assert key(answer) == ""
    assert not short(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (r"\boxed{1} then, checking again, \boxed{2}", "2"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{3} and then a cut \boxed{4", "3"),
        (r"\boxed{\{1, \{2\}\}}", "{1,{2}}"),
        ("The answer is 41. No, wait: the answer is 42.", "42"),
        ("Answer: 41\n\n" + LONG + "\n\nAnswer: 42", "42"),
        ("<answer>41</answer> Hm. <answer>42</answer>", "42"),
        ("assert f(1) == 2\nassert f(2) == 3", "3"),
        ("assert f('a == b') == 'c == d'", "'c == d'"),
        (r"\boxed{42}" + "\n\nAnswer: forty-two", "42"),
    ],
)
def test_the_last_conclusion_counts_and_a_box_before_a_sentence(answer: str, expected: str) -> None:
    assert key(answer) == expected


# -- clusters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([], ()),
        (["a"], (0,)),
        (["a", "b", "A.", "", "b"], (0, 1, 0, NONE, 1)),
        (["", " ", "?!"], (NONE, NONE, NONE)),
        ([r"\boxed{4}", LONG + "4", "5", "#### 5", "The answer is 4."], (0, 0, 1, 1, 0)),
        ([POEM, POEM.upper() + "!", POEM + " And more."], (0, 0, 1)),
        ([LONG + "so be it", "so be it"], (0, 1)),
        (["= 4", "4", "~ 4"], (0, 0, 0)),
    ],
)
def test_without_likeness_answers_agree_by_key_and_prose_by_its_text(
    answers: list[str], expected: tuple[int, ...]
) -> None:
    assert clusters(answers) == expected


def prose(topic: str, words: str) -> str:
    return f"{topic}: a text that concludes with nothing, for all its letters.\n\nIt has {words}."


ONE, TWO, THREE = prose("sea", "waves"), prose("sea", "wind"), prose("fire", "smoke")


def about_the_same(one: str, other: str) -> bool:
    return one.partition(":")[0] == other.partition(":")[0]


def test_prose_agrees_where_somebody_says_that_it_is_alike() -> None:
    assert clusters([ONE, TWO, THREE, ONE]) == (0, 1, 2, 0)
    assert clusters([ONE, TWO, THREE, ONE], about_the_same) == (0, 0, 1, 0)
    assert clusters([THREE, ONE, TWO], about_the_same) == (0, 1, 1)


def test_likeness_is_asked_of_prose_only_and_once_for_two_texts() -> None:
    asked: list[tuple[str, str]] = []

    def never(one: str, other: str) -> bool:
        asked.append((one, other))
        return False

    clusters([ONE, "4", TWO, "5", ONE, "", TWO, THREE], never)
    assert len(asked) == 3
    assert {frozenset(pair) for pair in asked} == {
        frozenset(pair) for pair in [(ONE, TWO), (ONE, THREE), (TWO, THREE)]
    }


def test_texts_that_say_yes_and_no_are_never_alike() -> None:
    yes, no, neither = (f"{word} {THREE}\n\n{THREE}" for word in ["Yes.", "No.", "Well."])
    assert clusters([yes, no, neither], lambda one, other: True) == (0, 1, 2)
    assert clusters([yes, yes + " Sure.", no], lambda one, other: True) == (0, 0, 1)


def test_likeness_links_over_a_third_text() -> None:
    near = {frozenset([ONE, TWO]), frozenset([TWO, THREE])}
    linked = clusters([ONE, THREE, TWO], lambda one, other: frozenset([one, other]) in near)
    assert linked == (0, 0, 0)


def test_a_likeness_that_has_a_direction_does_not_make_order_count() -> None:
    for order in permutations([ONE, TWO, THREE]):
        assert clusters(order, lambda one, other: one < other) == (0, 0, 0)


POOL = ["4", "4.0", "5", "", ONE, TWO, THREE, prose("fire", "heat"), POEM]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(POOL), min_size=1, max_size=7),
    st.frozensets(st.tuples(st.sampled_from(POOL), st.sampled_from(POOL)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_clusters_do_not_depend_on_the_order_of_answers(
    answers: list[str], near: frozenset[tuple[str, str]], chance: object
) -> None:
    def similar(one: str, other: str) -> bool:
        return (one, other) in near or (other, one) in near

    order = list(range(len(answers)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    here = clusters(answers, similar)
    there = clusters([answers[place] for place in order], similar)
    for one in range(len(order)):
        for other in range(len(order)):
            together = there[one] == there[other] != NONE
            assert together == (here[order[one]] == here[order[other]] != NONE)
    named = [number for number in there if number != NONE]
    assert list(dict.fromkeys(named)) == list(range(len(set(named))))


@pytest.mark.parametrize(
    ("numbers", "winner"),
    [
        ((0,), 0),
        ((0, 1), 0),
        ((0, 1, 1), 1),
        ((1, 0, 0, 1), 0),
        ((NONE, NONE, 0), 2),
        ((NONE, NONE), 0),
        ((7, 3, 3, 7, 3), 1),
    ],
)
def test_the_largest_cluster_is_elected_and_of_equals_the_earliest(
    numbers: tuple[int, ...], winner: int
) -> None:
    assert elect(numbers) == winner


def test_nothing_cannot_be_elected() -> None:
    with pytest.raises(ValueError, match="at least one"):
        elect([])


def test_who_is_elected_is_of_the_majority_in_any_order() -> None:
    for order in permutations(["4", "5", "4.0", LONG + "it is 4"]):
        assert key(order[elect(clusters(order))]) == "4"


# -- attacks ------------------------------------------------------------------------------------

HUGE = 1_000_000
HOSTILE = {
    "a megabyte of letters": "a" * HUGE,
    "a megabyte of digits": "9" * HUGE,
    "a megabyte of spaces": " " * HUGE + "4",
    "boxes that never close": "\\boxed{" * (HUGE // 7),
    "nested boxes": "\\boxed{" * (HUGE // 8) + "4" + "}" * (HUGE // 8),
    "fractions in fractions": "\\boxed{" + "\\frac{" * 600 + "1" + "}{2}" * 600,
    "roots in roots": "\\boxed{" + "\\sqrt{" * 500 + "2" + "}" * 501,
    "texts in texts": "\\boxed{" + "\\text{" * 500 + "2" + "}" * 501,
    "braces": "{" * HUGE,
    "brackets": "[" * HUGE,
    "brackets that close": "[" * 500 + "]" * 500,
    "minus signs in a list": "[" + "-" * 900 + "1]",
    "quotes": "'" * HUGE,
    "backslashes": "\\" * HUGE,
    "fences": "```\n" * (HUGE // 4),
    "tags that never close": "<answer>" * (HUGE // 8),
    "markers": "the answer is " * (HUGE // 14),
    "colons": "answer: " * (HUGE // 8),
    "equals signs": "= " * (HUGE // 2),
    "equals and numbers": "=1" * (HUGE // 2),
    "asserts": "assert == " * (HUGE // 10),
    "asserts on lines": "assert 1 == 2 == \n" * (HUGE // 18),
    "commas and digits": "1," * (HUGE // 2),
    "thousands": "1" + ",000" * (HUGE // 4),
    "sentence ends": "a. " * (HUGE // 3),
    "stars": "*" * HUGE,
    "dollars": "$" * HUGE,
    "lines": "\n" * HUGE,
    "JSON in JSON": '{"answer": ' * 300 + "4" + "}" * 300,
    "JSON that is deep": '{"answer": ' + "[" * 1000 + "]" * 1000 + "}",
    "a ligature that unfolds": "\ufdfa" * HUGE,
    "marks on one letter": "a" + "\u0301" * HUGE,
    "marks out of order on one letter": "a" + "\u0301\u0316" * (HUGE // 2),
    "marks out of order in a box": "\\boxed{a" + "\u0301\u0316" * 2000 + "}",
    "a short one with marks": "a" + "\u0301" * 50,
    "a number of another script over nought": "1/٠",
    "a power of a power": "x" + "^{2" * 30 + "}" * 30,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_have_some_key_in_time(name: str) -> None:
    answer = HOSTILE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = key(answer)
        assert clusters([answer, answer]) in ((0, 0), (NONE, NONE))
    assert len(found) <= 20 * READ_CHARS


@pytest.mark.parametrize("text", ["\ud800", "\x00", "4\ud800", "['\ud800']", "{\x00}", "\u202e4"])
def test_text_that_is_none_has_a_defined_key(text: str) -> None:
    assert key(text) == key(text)
    assert clusters([text, text, "other"])[2] == 1


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_answer_has_one_key_and_agrees_with_itself(answer: str) -> None:
    assert key(answer) == key(answer)
    assert clusters([answer, answer]) in ((0, 0), (NONE, NONE))


PIECES = [
    *"()[]{}$\\'\"`*=.,:;!?-+/%# \n", "4", "1/2", "\\boxed{", "\\frac{", "\\text{", "```",
    "assert ", " == ", "The answer is ", "Answer:", "####", "yes", "No", "(B)", "π", "½", "²", "٤",
    "million", "<answer>", "</answer>", '{"answer": ', "def ", "so ",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_whatever_is_written_nothing_is_raised_and_keys_are_their_own(pieces: list[str]) -> None:
    answer = "".join(pieces)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = key(answer)
    assert found == found.strip()
    assert clusters([answer, answer, ""])[2] == NONE


@settings(deadline=None)
@given(st.fractions(max_denominator=1000), st.sampled_from(["{}", "${}$", "The answer is {}."]))
def test_a_quotient_and_its_decimal_have_one_key(value, form: str) -> None:
    quotient = f"{value.numerator}/{value.denominator}"
    latex = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    assert key(form.format(quotient)) == key(form.format(latex))
    if 1000 % value.denominator == 0:
        thousandths = str(int(abs(value) * 1000)).rjust(4, "0")
        decimal = f"{'-' * (value < 0)}{thousandths[:-3]}.{thousandths[-3:]}"
        assert key(form.format(decimal)) == key(form.format(quotient))


def test_what_is_cut_keeps_both_ends_within_its_length() -> None:
    for length in [0, 1, 99, 100, 101, 1000]:
        text = "".join(chr(97 + place % 26) for place in range(length))
        cut = ends(text, 100)
        assert len(cut) <= 100
        assert (cut == text) == (length <= 100)
        assert text.startswith(cut[:40]) and text.endswith(cut[-40:] if length else "")


def test_the_border_between_short_and_long_is_where_it_is_said_to_be() -> None:
    words = "so many words that say nothing at all of any worth to those who have to read on"
    words = words[:SHORT_CHARS].strip().ljust(SHORT_CHARS, "x")
    assert key(words) == words
    assert key(words + "y") == ""
