"""Labels of kernels: instances of one template are told apart, in the fewest words."""

from __future__ import annotations

import time

import pytest

from diagnose.render.labels import arguments, labels

GELU = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, "
    "at::native::GeluType)::[lambda() (instance 2)]::operator ()() const::[lambda() (instance 4)]::operator ()() const"
    "::[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
    "std::array<char *, (unsigned long)1>>(int, T2, T3)"
)


def test_instances_of_a_template_are_told_apart() -> None:
    named = [("map", "void map<Add>(const float *)"), ("map", "void map<Gelu>(const float *)"), ("sum", "sum(float *)")]
    assert labels(named) == ["map<Add>", "map<Gelu>", "sum"]


def test_one_instance_needs_no_arguments() -> None:
    full = "void map<Add>(const float *)"
    assert labels([("map", full), ("map", full)]) == ["map", "map"]


def test_casts_namespaces_and_the_way_to_a_lambda_are_left_out() -> None:
    name = "vectorized_elementwise_kernel"
    assert labels([(name, GELU), (name, FILL)], width=60) == [
        f"{name}<8, GeluCUDAKernelImpl, array<char *, 2>>",
        f"{name}<4, FillFunctor<float>, array<char *, 1>>",
    ]
    assert labels([(name, GELU), (name, FILL)], width=24)[0] == f"{name}<8, GeluCUDAKernelImpl,…>"


def test_overloads_without_a_template_keep_their_name() -> None:
    assert labels([("scale", "scale(float *)"), ("scale", "scale(double *)")]) == ["scale", "scale"]


@pytest.mark.parametrize(
    ("name", "full", "inner"),
    [
        ("f", "void a::f<(bool)1, b::g<int>>(int)", "(bool)1, b::g<int>"),
        ("f", "void half<int>(f<int>)", "int"),  # the name as a word, not the end of another
        ("f", "void f<&(a->b)>(int)", "&(a->b)"),
        ("f", "void f<int(", None),
        ("f", "f(int)", None),
        ("f[", "void f[<1>()", "1"),
    ],
)
def test_the_arguments_of_a_function(name: str, full: str, inner: str | None) -> None:
    assert arguments(name, full) == inner


def test_a_hostile_name_takes_no_time() -> None:
    began = time.monotonic()
    labels([("f", "f<" + "(" * 200_000), ("f", "f<" + "a::" * 60_000), ("f", "f<" + "(a)::[lambda" * 20_000 + ">")])
    assert time.monotonic() - began < 2
