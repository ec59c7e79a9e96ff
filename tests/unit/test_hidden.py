"""Whether each of the sender's hidden tests was executed, by the ids that runners give them."""

import pytest

from autocoder.hidden import missing, names

PYTHON = """
import pytest
def test_a(): assert 1
@pytest.mark.parametrize("x", [1, 2])
def test_each(x): assert x
@pytest.mark.skip
def test_skipped(): assert 1
class TestThing:
    def test_in(self): assert 1
class Helper:
    def test_connection(self): ...
"""
JAVASCRIPT = """
describe("sums", () => {
  it("adds", () => expect(1).toBe(1));
  it.each([1])("adds %i and $more", () => expect(1).toBe(1));
  it(`doesn\\'t ${x}`, () => expect(1).toBe(1));
  it.skip("later", () => {});
});
"""
GO = """package m
func TestMain(m *testing.M) { m.Run() }
func TestA(t *testing.T) { t.Fatal() }
func Testable() {}
func ExampleA() { fmt.Println() }
func FuzzB(f *testing.F) { f.Fatal() }
"""
RUST = "#[test]\nfn a() { assert!(x) }\nmod m {\n#[test]\n#[ignore]\nfn b() { assert!(x) }\n}\n"


@pytest.mark.parametrize(
    ("path", "text", "executed"),
    [
        ("t/test_x.py", PYTHON, ["test_a", "test_each", "TestThing::test_in"]),
        ("t/x.test.js", JAVASCRIPT, ["sums > adds", "sums > doesn't 1"]),
        ("t/x_test.go", GO, ["TestA", "FuzzB"]),
        ("tests/x.rs", RUST, ["a"]),
    ],
)
def test_each_test_that_stands_there_and_is_not_skipped_must_have_run(
    path: str, text: str, executed: list[str]
) -> None:
    joint = {"py": "::", "js": " > ", "go": ".", "rs": "::"}[path.rpartition(".")[2]]
    whole = "example.com/m/t" if path.endswith(".go") else path
    ids = [f"{whole}{joint}{name}" for name in executed]
    assert missing({path: text}, ids) == []
    for one in ids:
        assert missing({path: text}, [other for other in ids if other != one])
        assert missing({path: text}, [f"other{other}x" for other in ids])


def test_tests_that_a_class_inherits_have_run_by_its_name() -> None:
    text = "class TestBase:\n    def test_a(self): assert 1\n"
    assert missing({"test_x.py": text}, ["test_x.py::TestSub::test_a"]) == []


def test_a_file_that_skips_as_it_runs_is_left_to_its_runner() -> None:
    text = "import pytest\npytest.importorskip('numpy')\ndef test_a(): assert 1\n"
    assert missing({"test_x.py": text}, []) == []


def test_go_is_asked_for_these_tests_by_name() -> None:
    assert names({"x_test.go": GO}) == ["ExampleA", "FuzzB", "TestA"]
