import jax
import jax.numpy as jnp

from tuner.measure.hlo import parse_hlo

TEXT = r"""HloModule jit_program, entry_computation_layout={(f32[8,4]{1,0:T(8,128)})->(f32[8]{0}, s32[])}

FileNames
1 "/home/user/model.py"

%fused_computation (param_0: f32[8,4], param_1.2: bf16[4,6]) -> bf16[8,6] {
  %param_0 = f32[8,4]{1,0:T(8,128)(2,1)} parameter(0)
  %convert.1 = bf16[8,4]{1,0} convert(%param_0), metadata={op_name="jit(program)/layer[a]/convert_element_type" stack_frame_id=3}
  %param_1.2 = bf16[4,6]{1,0} parameter(1)
  ROOT %dot.7 = bf16[8,6]{1,0} dot(%convert.1, %param_1.2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(program)/layer[a]/dot_general"}
}

%branch_0 (p: s32[]) -> s32[] {
  ROOT %p = s32[] parameter(0)
}

ENTRY %main.4 (packed__w__.1: f32[8,4], inputs_0_.1: bf16[4,6]) -> (f32[8], s32[]) {
  %packed__w__.1 = f32[8,4]{1,0} parameter(0), metadata={op_name="packed[\'w\']"}
  %inputs_0_.1 = bf16[4,6]{1,0} parameter(1), metadata={op_name="inputs[0]"}
  %constant.2 = f32[2]{0} constant({1, 2})
  %fusion = bf16[8,6]{1,0} fusion(%packed__w__.1, %inputs_0_.1), kind=kCustom, calls=%fused_computation, backend_config={"kind":"(unbalanced"}
  %custom-call.1 = (f32[8]{0}, s8[4194304]{0}) custom-call(%fusion, %fusion), custom_call_target="__cublas$gemm", metadata={op_name="jit(program)/dot_general"}
  %get-tuple-element.1 = f32[8]{0} get-tuple-element(%custom-call.1), index=0
  %conditional = s32[] conditional(%constant.2), branch_computations={%branch_0, %branch_0}
  ROOT %tuple = (f32[8]{0}, s32[]) tuple(%get-tuple-element.1, %conditional)
}
"""


def test_reads_computations_and_the_entry():
    module = parse_hlo(TEXT)
    assert list(module.computations) == ["fused_computation", "branch_0", "main.4"]
    assert module.entry == "main.4"


def test_reads_opcodes_dtypes_operands_and_metadata():
    fused = parse_hlo(TEXT).computations["fused_computation"].instructions
    dot = fused["dot.7"]
    assert (dot.opcode, dot.dtype, dot.operands) == ("dot", "bf16", ("convert.1", "param_1.2"))
    assert dot.op_name == "jit(program)/layer[a]/dot_general"
    assert dot.is_root
    assert fused["convert.1"].operands == ("param_0",)


def test_reads_layouts_that_hold_parentheses():
    fused = parse_hlo(TEXT).computations["fused_computation"].instructions
    assert (fused["param_0"].opcode, fused["param_0"].dtype, fused["param_0"].parameter) == ("parameter", "f32", 0)


def test_a_tuple_has_the_dtype_of_its_first_element():
    call = parse_hlo(TEXT).computations["main.4"].instructions["custom-call.1"]
    assert (call.dtype, call.target, call.operands) == ("f32", "__cublas$gemm", ("fusion", "fusion"))


def test_quotes_in_names_are_unescaped():
    entry = parse_hlo(TEXT).computations["main.4"]
    assert entry.instructions["packed__w__.1"].op_name == "packed['w']"


def test_constants_have_no_operands():
    assert parse_hlo(TEXT).computations["main.4"].instructions["constant.2"].operands == ()


def test_links_users_and_callers():
    module = parse_hlo(TEXT)
    entry = module.computations["main.4"]
    assert [user.name for user in entry.users["inputs_0_.1"]] == ["fusion"]
    ((outer, caller),) = module.computations["fused_computation"].callers
    assert (outer.name, caller.name) == ("main.4", "fusion")
    assert len(module.computations["branch_0"].callers) == 2


def test_finds_roots_and_parameters():
    fused = parse_hlo(TEXT).computations["fused_computation"]
    assert fused.root.name == "dot.7"
    assert fused.parameter(1).name == "param_1.2"
    assert fused.parameter(2) is None


def test_reads_every_instruction_that_xla_prints_here():
    def program(packed, *inputs):
        x = jax.nn.softmax(inputs[0] @ packed["w"])
        return jax.lax.cond(
            x.sum() > 0, lambda: jax.lax.fori_loop(0, 3, lambda i, y: y * 2, x), lambda: x
        ), jnp.argsort(x)

    arguments = ({"w": jnp.ones((4, 4))}, jnp.ones((4, 4)))
    text = jax.jit(program).lower(*arguments).compile().as_text()
    lines = [line for line in text.splitlines() if line.startswith("  ") and " = " in line]
    module = parse_hlo(text)
    assert sum(1 for _ in module) == len(lines)
    names = {instruction.op_name for computation, instruction in module if computation.name == module.entry}
    assert {"packed['w']", "inputs[0]"} <= names
    for computation, instruction in module:
        assert all(operand in computation.instructions for operand in instruction.operands)


def test_nothing_is_read_from_nothing():
    module = parse_hlo("")
    assert (module.computations, module.entry) == ({}, None)
