"""Brace definitions: what is found, and where it ends, in the languages with curly brackets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessiontree.survey.finding import FileFinding

Survey = Callable[[str, str], FileFinding]

C = """
#include <stdio.h>
#define EACH(x) for (;;) { x }

struct point { int x; };
typedef enum { A, B } kind;

static const char *name_of(struct point *p) {
    if (p->x > 0) { return "{"; }
    for (int i = 0; i < 3; i++) { list_for_each(p) { } }
    return "b"; /* } */
}

int
gnu_style(int a,
          int b)
{
    return a;
}

#ifdef X
int either(int a) {
#else
int either(long a) {
#endif
    return 1;
}

struct point make(int x) {
    return (struct point){x};
}

extern "C" {
void inside(void) {
}
}
int declared(int a);
int table[] = { 1, 2 };
"""

CPP = """
template <class T, typename U> class FOO_API Box final : public Base<T> {
public:
    Box(int a) : a_(a), b_{} {
    }
    ~Box() noexcept override {
    }
    T get() const {
        auto f = [&](int x) { return x; };
        return f(1);
    }
    bool operator==(const Box& o) const { return a_ == o.a_; }
};
namespace n {
template <typename T>
auto Box<T>::twice(T t) -> decltype(t) {
    switch (t) { case 1: { break; } }
    return R"(} // )";
}
enum class Color : int { Red };
}
"""

JAVA = """
package a.b;
@SuppressWarnings("x") // class name
public final class Cache<K extends Comparable<K>> implements Map<K> {
    private final int[] a = {1, 2};
    Cache(int size) {
        this.size = size;
    }
    @Override
    public <T> List<T> get(final K key, int... more) throws IOException, Oops {
        synchronized (this) { run(new Runnable() {
            public void run() { }
        }); }
        try { } catch (Exception e) { } finally { }
        return null;
    }
    interface Inner { void no(); }
    record Point(int x, int y) {
    }
    abstract void nothing();
}
"""

CSHARP = """
#region x
namespace A.B {
    [Serializable]
    public sealed class Thing<T> : IThing where T : class, new() {
        public int Size { get; set; }
        public Thing(int a) : base(a) {
        }
        public async Task<int?> RunAsync<U>(U u) where U : struct {
            lock (this) { }
            foreach (var x in y) { }
            var s = @"a\\";
            return await F(() => { return 1; });
        }
    }
}
"""

JS = """
export default class Store extends Base {
  #secret = 1
  constructor({ a, b } = {}) {
    super()
  }
  static async load(url) {
    if (url) { return fetch(url).then(function (r) { return r }) }
    while (x) { }
  }
  get size() { return 1 }
}
export async function* generate(a = { b: 1 }) {
  yield a
}
const arrow = async (a, b) => {
  return `}`
}
const short = x => x + 1
exports.handler = function (event) {
  return 1
}
const pattern = /[{"']/
function last() {
}
"""

GO = """
package main

type Server struct {
	mu sync.Mutex
}

type Handler interface {
	Serve(w Writer) error
}

func (s *Server) Serve(w Writer) (n int, err error) {
	go func() { }()
	for _, x := range []int{1} { }
	return
}

func Map[T any](in []T) map[string]interface{} {
	return nil
}

func Any(in interface{}) (interface{}, struct{}) {
	return nil
}
"""

RUST = """
pub(crate) struct Stack<'a, T> where T: 'a {
    items: Vec<&'a T>,
}
pub enum E { A { x: i32 }, B }
mod tests;
mod inner {
    pub fn deep() {}
}
impl<'a, T> Stack<'a, T> {
    pub async unsafe fn push<F>(&mut self, f: F) -> Result<(), E>
    where
        F: Fn(i32) -> bool, I: Iterator<Item = u8>,
    {
        match x { '{' => {}, _ => {} }
    }
    const fn new() -> Self { Self { items: vec![] } }
}
trait Shape { fn area(&self) -> f64; }
fn last() {
}
"""

KOTLIN = """
@Anno("x") internal data class User(val name: String = "{") : Base(name) {
    override suspend fun load(id: Int): User? {
        return null
    }
    companion object { }
    fun short() = 1
    val x = lazy { 1 }
}
fun <T : Any> List<T>.second(): T {
    return this[1]
}
class `odd name` {
}
"""

SWIFT = """
public final class View: Base {
    init?(frame: Rect) {
    }
    class func make<T>(_ t: T) -> View {
        guard let x = t else { return View() }
        return x
    }
}
extension View { }
protocol P { func no() }
"""

PHP = """<?php
namespace A;
abstract class Model {
    public static function &find(int $id): ?self {
        return "{$id}";
    }
}
function helper() { # {
}
"""

SHELL = """#!/bin/sh
main() {
  echo "${1#a}" # }
  if [ $# -gt 0 ]; then { echo; }; fi
}
function other {
  echo ${x}
}
"""


OBJECTIVE_C = """
#import <Foundation/Foundation.h>
@interface Cache : NSObject {
    int size;
}
- (void)declared:(int)a;
@end
@implementation Cache
- (instancetype)initWithSize:(int)size name:(NSString *)name {
    if (self) { }
    return self;
}
static int helper(int a) {
    return a;
}
@end
"""


def found(finding: FileFinding) -> list[tuple[str, int, int]]:
    """Return name, first and last line of each definition."""
    return [(one.name, one.line, one.end_line) for one in finding.definitions]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "a.c",
            C,
            [
                ("point", 5, 5),
                ("name_of", 8, 12),
                ("gnu_style", 15, 19),
                ("either", 22, 27),
                ("make", 29, 31),
                ("inside", 34, 35),
            ],
        ),
        (
            "a.cpp",
            CPP,
            [
                ("Box", 2, 13),
                ("Box.Box", 4, 5),
                ("Box.~Box", 6, 7),
                ("Box.get", 8, 11),
                ("Box.operator==", 12, 12),
                ("Box<T>::twice", 16, 19),
                ("Color", 20, 20),
            ],
        ),
        (
            "A.java",
            JAVA,
            [
                ("Cache", 4, 21),
                ("Cache.Cache", 6, 8),
                ("Cache.get", 10, 16),
                ("Cache.run", 12, 12),
                ("Cache.Inner", 17, 17),
                ("Cache.Point", 18, 19),
            ],
        ),
        ("a.cs", CSHARP, [("Thing", 5, 15), ("Thing.Thing", 7, 8), ("Thing.RunAsync", 9, 14)]),
        (
            "a.js",
            JS,
            [
                ("Store", 2, 12),
                ("Store.constructor", 4, 6),
                ("Store.load", 7, 10),
                ("Store.size", 11, 11),
                ("generate", 13, 15),
                ("arrow", 16, 18),
                ("short", 19, 19),
                ("handler", 20, 22),
                ("last", 24, 25),
            ],
        ),
        (
            "a.go",
            GO,
            [
                ("Server", 4, 6),
                ("Handler", 8, 10),
                ("Server.Serve", 12, 16),
                ("Map", 18, 20),
                ("Any", 22, 24),
            ],
        ),
        (
            "a.rs",
            RUST,
            [
                ("Stack", 2, 4),
                ("E", 5, 5),
                ("inner", 7, 9),
                ("inner.deep", 8, 8),
                ("push", 11, 16),
                ("new", 17, 17),
                ("Shape", 19, 19),
                ("last", 20, 21),
            ],
        ),
        (
            "a.kt",
            KOTLIN,
            [
                ("User", 2, 9),
                ("User.load", 3, 5),
                ("User.short", 7, 7),
                ("second", 10, 12),
                ("`odd name`", 13, 14),
            ],
        ),
        (
            "a.swift",
            SWIFT,
            [("View", 2, 9), ("View.init", 3, 4), ("View.make", 5, 8), ("View", 10, 10), ("P", 11, 11)],
        ),
        ("a.php", PHP, [("Model", 3, 7), ("Model.find", 4, 6), ("helper", 8, 9)]),
        (
            "a.m",
            OBJECTIVE_C,
            [
                ("Cache", 3, 5),
                ("declared", 6, 6),
                ("Cache", 8, 8),
                ("initWithSize", 9, 12),
                ("helper", 13, 15),
            ],
        ),
        ("a.sh", SHELL, [("main", 2, 5), ("other", 6, 8)]),
    ],
)
def test_definitions_and_their_ends(
    survey_text: Survey, path: str, text: str, expected: list[tuple[str, int, int]]
) -> None:
    """Functions, methods and classes have first and last line; calls, blocks and strings are none."""
    assert found(survey_text(path, text)) == expected


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.c", "int f(void) {\n  if (x) {\n}\nint g(void) {\n}\n", [("f", 1, 1)]),
        ("a.c", "}}}\nint g(void) {\n}\n", [("g", 2, 3)]),
        ("a.js", "function a() {\n", [("a", 1, 1)]),
        ("a.kt", "fun a() = 1\nval x = foo {\n}\n", [("a", 1, 1)]),
        ("a.go", "func asm(x int) int\n\nvar x = []int{\n}\n", [("asm", 1, 1)]),
        ("a.rs", "trait T {\n fn a();\n fn b() {\n }\n}\n", [("T", 1, 5), ("T.a", 2, 2), ("T.b", 3, 4)]),
    ],
)
def test_what_has_no_end_counts_one_line(
    survey_text: Survey, path: str, text: str, expected: list[tuple[str, int, int]]
) -> None:
    """Unbalanced braces and bodiless definitions never borrow the braces of what comes after."""
    assert found(survey_text(path, text)) == expected


def test_generated_lines_are_not_searched_but_the_rest_is(survey_text: Survey) -> None:
    """A minified line costs neither time nor the functions beside it, and is spoken of."""
    finding = survey_text("a.js", "function a() {\n}\n" + "function z(){};" * 1_000 + "\nfunction b() {\n}\n")
    assert found(finding) == [("a", 1, 2), ("b", 4, 5)]
    assert finding.problem == "lines over 5,000 characters were not searched for definitions"
