"""How a kernel becomes machine code: each function once, in a file of its own.

numba compiles a function together with everything it calls, and again for every constant it is
called with: a helper at the bottom is optimized once for each kernel above it, and most of the
time goes there. Here a function is compiled once for its types:

    infer     what types its variables have; the functions it calls come first
    lower     LLVM code of the function by itself, into which the small functions it calls
              are copied; optimized
    keep      a small result (`_SMALL` instructions) as LLVM code, to be copied by its callers;
              a larger one as machine code, which its callers call

and what Python calls gets a *wrapper*, which makes Python objects into arguments. Entries in the
cache (kernels/cache.py) name the machine code they call; `_link` brings an entry and all it needs
into the process. LLVM does not inline large functions either, so little is lost at run time.

`infer` needs one process and goes down the tree of calls. `lower` can be done by anybody once the
types are known: who compiles many kernels sets `run` to hand it to others (kernels/workers.py).

It builds on parts of numba that are no public interface: docs/internals/numba.md lists them.
Compiling holds numba's lock; calling what was compiled holds none. A first call loads in a thread
of its own (tideline/shelter.py): an exception thrown into numba, Ctrl-C say, leaves its registries
half filled or its lock locked.
"""

# mypy: disable-error-code="attr-defined, union-attr, assignment, misc"
# What is used of numba has no stubs, and says in no other way what it exports.

from __future__ import annotations

import hashlib
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import llvmlite.binding as ll
from numba.core import compiler, funcdesc, sigutils, types, typing
from numba.core import environment as environments
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.targetconfig import ConfigStack
from numba.core.typed_passes import IRLegalization, NativeLowering

from tideline.kernels import cache, checks
from tideline.shelter import run_apart

__all__ = ["Kernel", "Task", "compiled", "run_with"]

_SMALL = 200
"""Functions of at most so many LLVM instructions are copied into their callers."""

Task = Callable[[], None]


def _at_once(name: str, task: Task) -> None:
    task()


def _no_wait(name: str) -> None:
    pass


_run: list[Callable[[str, Task], None]] = [_at_once]
_wait: list[Callable[[str], None]] = [_no_wait]


def run_with(
    run: Callable[[str, Task], None] = _at_once, wait: Callable[[str], None] = _no_wait
) -> None:
    """Let others lower: `run(name, task)` may return before the entry `name` is there.

    `wait(name)` is called before an entry that may be missing is read, or compiled.
    """
    _run[:] = [run]
    _wait[:] = [wait]


compiled: list[str] = []
"""The entries that this process has compiled, for whoever wants to know what was there."""


class _Missing(Exception):
    """An entry that another one needs is not in the cache."""


class _Callee:
    """A compiled function in the eyes of numba: a library that will be linked later."""

    _reload_init: frozenset[Any] = frozenset()

    def __init__(self, name: str) -> None:
        self.name = name


class _Body:
    """A function compiled for types: what its callers have to know."""

    def __init__(self, name: str, fndesc: Any, signature: Any) -> None:
        self.name = name
        self.fndesc = fndesc
        self.signature = signature
        self.library = _Callee(name)


_kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()


class Kernel(CPUDispatcher):
    """A function that numba compiles, kept by content."""

    def __init__(self, py_func: Any, options: dict[str, Any]) -> None:
        super().__init__(py_func, targetoptions=options)
        self._bodies: dict[tuple[Any, ...], _Body] = {}
        code = py_func.__code__
        group, _, module = py_func.__module__.rpartition(".")
        group = group.removeprefix("tideline.kernels").removeprefix(".")
        self._name = f"{group}/{module}.{py_func.__qualname__}-{code.co_firstlineno}"
        _kernels.add(self)

    # ---- called by Python ---------------------------------------------------------------

    def compile(self, sig: Any) -> Any:
        """Compile, or load, for the types of a call; what Python then calls."""
        args, _ = sigutils.normalize_signature(sig)
        args = tuple(map(types.unliteral, args))
        found = self.overloads.get(args)
        if found is None:
            _wait[0](self.entry_name(args))  # outside the lock: it may take seconds
            found = run_apart(lambda: self._load(args))
        return found.entry_point

    def _load(self, args: tuple[Any, ...]) -> Any:
        with global_compiler_lock:
            found = self.overloads.get(args)
            if found is None:
                try:
                    found = self._link(self.prepare(args))
                except _Missing:  # somebody has deleted a part of the cache
                    cache.read_nothing()
                    for kernel in list(_kernels):
                        kernel._bodies.clear()
                    found = self._link(self.prepare(args))
                self.add_overload(found)
            return found

    def prepare(self, args: tuple[Any, ...]) -> str:
        """See to it that somebody compiles what Python calls; the name of that entry."""
        name = self.entry_name(args)
        if not cache.has(name):
            with global_compiler_lock:
                compiled.append(name)
                self.targetctx.refresh()
                body = self._body(args)
                flags = self._flags()
                _run[0](name, lambda: _wrap(self.targetctx, flags, body, name))
        return name

    def entry_name(self, args: tuple[Any, ...], kind: str = "wrapper") -> str:
        """The name of an entry in the cache."""
        digest = hashlib.sha256(repr([str(each) for each in args]).encode())
        digest.update(self.py_func.__code__.co_code)
        return f"{self._name}.{digest.hexdigest()[:16]}.{kind}"

    def _link(self, name: str) -> Any:
        entry = _entry(name)
        fndesc, signature, env = pickle.loads(entry.about)
        # What numba knows of Python and numpy (`refresh`, a fifth of a second) is for who compiles.
        rtsys.initialize(self.targetctx)
        codegen = self.targetctx.codegen()
        _link(codegen._engine, name, entry)
        address = codegen._engine.get_function_address(fndesc.llvm_cpython_wrapper_name)
        entry_point = environments._dynfunc.make_function(
            fndesc.lookup_module(), fndesc.qualname.split(".")[-1], "", address, env, ()
        )
        codegen.set_env(self.targetctx.get_env_name(fndesc), env)
        return compiler.compile_result(
            typing_context=self.typingctx, target_context=self.targetctx, entry_point=entry_point,
            signature=signature, fndesc=fndesc, environment=env, objectmode=False, lifted=(),
            library=_Callee(name), type_annotation="", reload_init=(),
        )  # fmt: skip

    if checks.CHECKED:

        def __call__(self, *args: Any) -> Any:
            """Call the kernel; whatever it does with addresses is looked up."""
            name = f"{self.py_func.__module__}.{self.py_func.__name__}"
            return checks.called(name, super().__call__, args)

    # ---- called by other kernels --------------------------------------------------------

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a call from another kernel returns. One body serves all constants."""
        pysig, args = self._compiler.fold_argument_types(args, kws)
        args = tuple(map(types.unliteral, args))
        body = self._body(args)
        name = f"CallTemplate({self.py_func.__name__})"
        template = typing.make_concrete_template(
            name, key=self.py_func.__name__, signatures=[body.signature]
        )
        return template, pysig, args, {}

    def get_overload(self, sig: Any) -> Any:
        """What numba finds the body for a call by."""
        args, _ = sigutils.normalize_signature(sig)
        return self._bodies[tuple(args)]

    # ---- inside -------------------------------------------------------------------------

    def _body(self, args: tuple[Any, ...]) -> _Body:
        body = self._bodies.get(args)
        if body is None:
            name = self.entry_name(args, "body")
            entry = cache.load(name)
            if entry is not None:
                body = _Body(name, *pickle.loads(entry.about))
            else:
                body = self._compile(name, args)
            self._bodies[args] = body
            self.targetctx.insert_user_function(body, body.fndesc, [body.library])
        return body

    def _compile(self, name: str, args: tuple[Any, ...]) -> _Body:
        compiled.append(name)
        with self._compiling_counter:
            state = compiler.compile_extra(
                self.typingctx, self.targetctx, self.py_func, args=args, return_type=None,
                flags=self._flags(), locals={}, pipeline_class=_Inference,
            )  # fmt: skip
        # numba counts functions up; in a name that other processes use, that must be the same.
        number = int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)
        identity = state.func_ir.func_id
        identity.unique_id = number
        identity.unique_name = f"{identity.func_qualname}${number}"
        body = _Body(name, _describe(state), typing.signature(state.return_type, *args))
        _run[0](name, lambda: _lower(state, body))
        return body

    def _flags(self) -> Any:
        flags = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags


@register_pass(mutates_CFG=False, analysis_only=True)
class _Inferred(AnalysisPass):
    """Ends the passes: what is known then is the result."""

    _name = "tideline_inferred"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.cr = state
        return False


_UNUSED = (
    "WithLifting", "InlineClosureLikes", "RewriteDynamicRaises", "MakeFunctionToJitFunction",
    "FindLiterallyCalls", "LiteralUnroll", "LiteralPropagationSubPipelinePass",
    "InlineOverloads", "NopythonRewrites",
)  # fmt: skip
"""Passes for what no kernel does: `with`, closures, exceptions with values, array expressions."""


class _Inference(compiler.CompilerBase):
    """numba's passes up to the types of all variables."""

    def define_pipelines(self) -> list[Any]:
        builder = compiler.DefaultPassBuilder
        passes = PassManager("inference")
        for some in (builder.define_untyped_pipeline, builder.define_typed_pipeline):
            for each in some(self.state).passes:
                if each[0].__name__ not in _UNUSED:
                    passes.passes.append(each)
        passes.add_pass(_Inferred, "types are known")
        passes.finalize()
        return [passes]


def _describe(state: Any) -> Any:
    """What a caller has to know of a function whose types are known."""
    flags = state.flags
    fndesc = funcdesc.PythonFunctionDescriptor.from_specialized_function(
        state.func_ir, state.typemap, state.return_type, state.calltypes,
        mangler=state.targetctx.mangler, inline=flags.forceinline, noalias=flags.noalias,
        abi_tags=[flags.get_mangle_string()],
    )  # fmt: skip
    fndesc.typemap = fndesc.calltypes = None
    return fndesc


class _Library(JITCodeLibrary):
    """The LLVM code of one function, and what it calls."""

    def add_linking_library(self, library: Any) -> None:
        if isinstance(library, _Callee):
            self._linking_libraries.append(library)
        else:
            super().add_linking_library(library)

    def complete(self) -> set[str]:
        """Copy in what is small, optimize; the names of what it calls."""
        needs: set[str] = set()
        module = self._final_module
        for library in dict.fromkeys(self._linking_libraries):
            if not isinstance(library, _Callee):
                module.link_in(library._get_module_for_linking(), preserve=True)
                continue
            _wait[0](library.name)
            entry = _entry(library.name)
            if entry.bitcode is None:
                needs.add(library.name)
            else:
                needs.update(entry.needs)
                module.link_in(ll.parse_bitcode(entry.bitcode))
        passes, builder = self._codegen._module_pass_manager()
        passes.run(module, builder)
        module.verify()
        return needs


def _lower(state: Any, body: _Body) -> None:
    """Compile a function whose types are known, and keep it."""
    codegen = state.targetctx.codegen()
    state.library = library = _Library(codegen, body.name)
    with global_compiler_lock, ConfigStack().enter(state.flags.copy()):
        IRLegalization().run_pass(state)
        NativeLowering().run_pass(state)
        needs = tuple(sorted(library.complete()))
    about = dumps((body.fndesc, body.signature))
    module = library._final_module
    function = module.get_function(body.fndesc.llvm_func_name)
    size = sum(1 for block in function.blocks for _ in block.instructions)
    if size > _SMALL and not body.fndesc.inline:
        entry = cache.Entry(needs, codegen._tm.emit_object(module), None, about)
    else:
        for each in module.functions:
            if not each.is_declaration and each.linkage == ll.Linkage.external:
                each.linkage = "linkonce_odr"
        entry = cache.Entry(needs, None, module.as_bitcode(), about)
    cache.save(body.name, entry)


def _wrap(context: Any, flags: Any, body: _Body, name: str) -> None:
    """Compile what makes a function callable from Python, and keep it."""
    codegen = context.codegen()
    library = _Library(codegen, name)
    env = environments.Environment.from_fndesc(body.fndesc)
    with global_compiler_lock, ConfigStack().enter(flags.copy()):
        library.add_linking_library(body.library)
        with context.push_code_library(library):
            context.create_cpython_wrapper(
                library, body.fndesc, env, None, release_gil=flags.release_gil
            )
        needs = tuple(sorted(library.complete()))
    about = dumps((body.fndesc, body.signature, env))
    code = codegen._tm.emit_object(library._final_module)
    cache.save(name, cache.Entry(needs, code, None, about))


_linked: set[str] = set()


def _link(engine: Any, name: str, entry: cache.Entry) -> None:
    """Bring the machine code of an entry, and of all it needs, into this process."""
    found = {name: entry}
    todo = [entry]
    while todo:  # all of it is read before anything is linked: LLVM ends the process otherwise
        for each in todo.pop().needs:
            if each not in _linked and each not in found:
                found[each] = _entry(each)
                todo.append(found[each])
    checks.link()
    for each in found.keys() - _linked:
        engine._ee.add_object_file(ll.ObjectFileRef.from_data(found[each].code))
        _linked.add(each)
    engine.finalize_object()


def _entry(name: str) -> cache.Entry:
    entry = cache.load(name)
    if entry is None:
        raise _Missing(name)
    return entry
