# SPDX-License-Identifier: Apache-2.0
#
# kvmm - the memory manager of an LLM node
#
# Targets
#   all          programs and libkvmm (the default)
#   run          install missing packages, build, and show the demo
#   check        install missing packages, build, and run every test (2 minutes after the build)
#   check-full   the same with more seeds and longer tests (15 minutes)
#   soak         the same with all the counts that the documentation claims (hours)
#   check-vllm   the connector with the real vLLM on a CPU (installs 6 GB, 3 to 10 minutes);
#                ROWS='shared pressure deaths windows ranks chats': more of it
#   check-llama  the prefix cache with the real llama.cpp on a CPU (compiles it, 20 minutes; then 2 to 10)
#   check-quality  perplexity by type of weights beside llama.cpp (trains a model first: 80 minutes; then an hour)
#   check-style  the rules of the source text; prints file:line: rule
#   sim          the simulator alone: make sim SEEDS=1000
#   coverage     code of kvmm/core that the tests reach: a table, build/cov/coverage.txt
#   mutants      plant every fault of tests/mutants, one by one: are all caught?
#   mutants-random  draw NR=100 faults of the core by SEED=n: are nine of ten caught?
#   fuzz         one fuzz target with a fuzzer: make fuzz T=sqe SECS=600 ENGINE=lib|afl
#   bench        every benchmark: a table here, build/bench.json for programs
#   bench-why    two models with one pool, and with two half pools: a table, build/why.json
#   gpu-probe    probes a GPU, PART='cost die' chooses; $OUT or build/gpu
#   gpu-check    tests on a GPU; exit status 77 without one
#   gpu-bench    speed of the kernels and the runtime: PART='attn step'
#   systemd-check  the units under a real systemd in a container; exit status 77 without one
#   tests        build all tests and benchmarks, run none
#   cuda         compile kernels/cuda/*.cu for GPUs, or give the reason why not
#   deps         install the Debian packages named in .ci/packages
#   docs         manual, completion for bash, units, files of options: build/share
#   pages        generated pages of Documentation: ABI reference, files of the core, pictures
#   install      programs, library, manual, units, options: prefix=/usr/local DESTDIR=
#   uninstall    remove installed files; a file of options that was changed stays
#   clean        remove the build of this O= (and its D= builds)
#   help         print this text
#
# Variables
#   V=1          print whole commands
#   W=1          more warnings, and every warning is an error
#   C=1          also run sparse (else cppcheck) on each file compiled, C=2 on all
#   D=NAME       asan, ubsan, san (both in one) or tsan: sanitized build in build/NAME
#   O=DIR        put all output in DIR instead of build
#   T='GLOB..'   check, bench: only tests with such names, T='check_ring it_*';
#                check builds only these
#   SUITES='..'  check: which kinds of tests: unit sim integration script
#   AS_IS=1      install: install the last build, build nothing
#   JOBS=2       mutants: number tried at once
#   SEEDS=N      sim, check, coverage: number of seeds that the simulator replays
#   MPICC        compiler of the MPI plugin; MPICC= leaves the plugin out
#   CC CFLAGS LDFLAGS NVCC CUDA_ARCHS as usual; CFLAGS replaces only -O2 -g
#
# Sources are found by wildcard, so a new file needs no line here:
#   kvmm/{core,ipc}/**.c, kvmm/{dev,proc}/*.c, lib/*.c, kvmm/main.c       -> kvmm
#   kvmm/hold/*.c, lib/*.c                             -> kvmm-hold
#   kvmm/sandbox/*.c                                        -> kvmm, kvmm-hold, swapd, kvmm-proc
#   kvmm/tools/kvctl*.c, lib/*.c                       -> kvctl
#   kvmm/tools/kvtop*.c, lib/*.c                       -> kvtop
#   kvmm/tools/*.c with other names                         -> both of these
#   kvmm/procfs/*.c, lib/*.c                           -> kvmm-proc
#   swapd/*.c, lib/*.c                                 -> swapd
#   the last but kvctl, kvtop, with tests/faults/*.c   -> faults/kvmm, faults/kvmm-hold,
#                                  faults/swapd: daemons that a test can make fail
#   runtime/**.c, kernels/{,ref,cpu,cuda}/*.c, lib/*.c      -> kvrt
#   runtime/ranks/mpi_plugin.c  -> lib/kvrt-mpi.so, by mpicc
#   tests/unit/check_X.c        -> tests/check_X, with libcheck and its archives: see `unit` below
#   tests/integration/it_X.c    -> tests/it_X, with the other .c files beside it
#   tests/preload/X.c           -> tests/X.so, to be preloaded by tests
#   tests/standin/cublaslt.c    -> tests/standin/libcublasLt.so, likewise
#   tests/standin/*, {kernels/cuda,tests/gpu}/*.cu -> tests/standin/libcuda.so.1, a CUDA driver on a CPU
#   kernels/cuda/*.cu           -> fatbins in kvrt, by nvcc; NVCC= leaves them out
#   tests/sim/*.c               -> tests/sim
#   tests/fuzz/fuzz_X.c         -> tests/fuzz_X, with the runtime
#   tests/bench/bench_X.c       -> tests/bench_X, with the other .c files beside it
#   tests/gpu/{probe*,bench*}.c -> gpu/probe, gpu/bench, with the other .c files beside
#                                  them and tests/gpu/*.cu
# A program without a source of main() is left out.
#
# kernels/cpu/v_X.c is compiled four times on x86-64, with KERN_VARIANT defined
# as base, avx2, avx512 and avx512bf16 and the flags that go with it (elsewhere
# only as base); the code there appends the macro to the names it exports.

O ?= build
OBJCOPY ?= objcopy
V ?= 0
W ?= 0
C ?= 0
D ?=
T ?=
SEEDS ?=
AS_IS ?=
SUITES ?= unit sim integration script

ifneq ($(filter-out san asan tsan ubsan,$(D)),)
$(error D=$(D): want san, asan, tsan or ubsan)
endif
ifneq ($(words $(O)),1)
$(error O='$(O)': want one directory name without spaces)
endif

MAKEFLAGS += -rR
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:

# All output of this build lies below $(B).
B := $(O)$(if $(D),/$(D))

prefix     ?= /usr/local
bindir     ?= $(prefix)/bin
sbindir    ?= $(prefix)/sbin
libdir     ?= $(prefix)/lib
includedir ?= $(prefix)/include
datadir    ?= $(prefix)/share
docdir     ?= $(datadir)/doc/kvmm
mandir     ?= $(datadir)/man
bashdir    ?= $(datadir)/bash-completion/completions
unitdir    ?= $(prefix)/lib/systemd/system
sysusersdir ?= $(prefix)/lib/sysusers.d
# Directory of options that programs read, whatever the prefix.
confdir    := /etc/kvmm

# ---------------------------------------------------------------- how it looks

ifeq ($(V),0)
Q := @
else
Q :=
endif
# On a terminal the lines of a build of all programs follow each other in one place, with
# their number and the number of all, which a make that only counts them finds.
COUNTING :=
said = $(eval SAID += x)$(words $(SAID))
count_all = $(shell env -u MAKEFLAGS $(MAKE) --no-print-directory -n $(MAKEOVERRIDES) COUNTING=1 all \
	    2>/dev/null | grep -c '^: said')
nr_all = $(or $(NR_ALL),$(eval NR_ALL := $(count_all))$(NR_ALL))
# $(call say,CC,name): the short line of a quiet build
ifneq ($(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
say = @:
else ifneq ($(COUNTING),)
say = @: said
else ifeq ($(V)$(MAKE_TERMOUT:%=t)$(or $(MAKECMDGOALS),all),0tall)
say = @printf '\033[K  %4s of %s  %-7s %s\r' $(said) $(nr_all) '$(1)' '$(2)'
else ifeq ($(V),0)
say = @printf '  %-7s %s\n' '$(1)' '$(2)'
else
say = @:
endif

# ------------------------------------------------------------------------ tools

ifneq ($(filter default undefined,$(origin CC)),)
CC := gcc
endif
ifneq ($(filter default undefined,$(origin AR)),)
AR := $(if $(findstring clang,$(CC)),llvm-ar,gcc-ar)
AR := $(if $(shell command -v $(AR) 2>/dev/null),$(AR),ar)
endif
PKG_CONFIG ?= pkg-config
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
# The tests compare the declarations of cuBLASLt with this header, if it is installed.
CUDA_INCLUDE := $(patsubst %/bin/nvcc,%/include,$(NVCC))
CUBLASLT_H := $(if $(NVCC),$(if $(wildcard $(CUDA_INCLUDE)/cublasLt.h),-DHAVE_CUBLASLT_H -idirafter $(CUDA_INCLUDE)))
CUDA_ARCHS ?= 80 86 89 90a
# Each architecture costs minutes of nvcc; the PTX, which is always built, runs on all.
CHECK_ARCHS ?= 90a
ifneq ($(filter default undefined,$(origin CXX)),)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
MPICC ?= $(shell command -v mpicc 2>/dev/null)
NPROC = $(shell nproc 2>/dev/null || echo 2)

# -------------------------------------------------------------------- sources

CORE_SRCS   := $(sort $(wildcard kvmm/core/*.c kvmm/core/*/*.c))
SHELL_SRCS  := $(sort $(wildcard kvmm/ipc/*.c kvmm/ipc/*/*.c kvmm/dev/*.c kvmm/proc/*.c))
HOLD_SRCS   := $(sort $(wildcard kvmm/hold/*.c))
LIB_SRCS    := $(sort $(wildcard lib/*.c))
BOX_SRCS    := $(sort $(wildcard kvmm/sandbox/*.c))
KVCTL_SRCS  := $(sort $(wildcard kvmm/tools/kvctl*.c))
KVTOP_SRCS  := $(sort $(wildcard kvmm/tools/kvtop*.c))
TOOL_SRCS   := $(sort $(wildcard kvmm/tools/*.c))
TOOL_SHARED := $(filter-out $(KVCTL_SRCS) $(KVTOP_SRCS),$(TOOL_SRCS))
PROCFS_SRCS := $(sort $(wildcard kvmm/procfs/*.c))
SWAPD_SRCS  := $(sort $(wildcard swapd/*.c))
# The calls of MPI are in a plugin, which mpicc compiles.
MPI_SRC     := $(wildcard runtime/ranks/mpi_plugin.c)
RT_SRCS     := $(filter-out $(MPI_SRC),$(sort $(wildcard runtime/*.c runtime/*/*.c)))
CLIENT_SRCS := $(sort $(wildcard runtime/libkvmm/*.c))
KERN_SRCS   := $(sort $(wildcard kernels/*.c kernels/ref/*.c kernels/cpu/*.c kernels/cuda/*.c))
CUDA_SRCS   := $(sort $(wildcard kernels/cuda/*.cu))

UNIT_SRCS   := $(sort $(wildcard tests/unit/check_*.c))
IT_SRCS     := $(sort $(wildcard tests/integration/it_*.c))
BENCH_SRCS  := $(sort $(wildcard tests/bench/bench_*.c))
SIM_SRCS    := $(sort $(wildcard tests/sim/*.c))
FUZZ_SRCS   := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SHARED := $(sort $(filter-out $(FUZZ_SRCS),$(wildcard tests/fuzz/*.c)))
GPU_SRCS    := $(sort $(wildcard tests/gpu/*.c))
GPU_KERNS   := $(sort $(wildcard tests/gpu/*.cu))
PRELOAD_SRCS := $(sort $(wildcard tests/preload/*.c))
ARMED_SRCS  := $(sort $(wildcard tests/faults/*.c))
# A separate library, which programs open beside the stand-in.
FAKE_LT_SRCS := $(wildcard tests/standin/cublaslt.c)
STANDIN_SRCS := $(sort $(filter-out $(FAKE_LT_SRCS),$(wildcard tests/standin/*.c)))
STANDIN_CXX := $(sort $(wildcard tests/standin/*.cpp))
STANDIN_CU  := $(sort $(wildcard kernels/cuda/*.cu tests/standin/*.cu tests/gpu/*.cu))
REPORT_SRC  := $(wildcard tests/bench/report.c)
UNIT_SHARED  := $(sort $(filter-out $(UNIT_SRCS),$(wildcard tests/unit/*.c)))
IT_SHARED    := $(sort $(filter-out $(IT_SRCS),$(wildcard tests/integration/*.c)))
BENCH_SHARED := $(sort $(filter-out $(BENCH_SRCS) $(REPORT_SRC),$(wildcard tests/bench/*.c)))

PROG_SRCS := $(sort $(wildcard kvmm/main.c) $(CORE_SRCS) $(SHELL_SRCS) $(HOLD_SRCS) $(LIB_SRCS) \
	       $(BOX_SRCS) $(TOOL_SRCS) $(PROCFS_SRCS) $(SWAPD_SRCS) $(RT_SRCS) $(KERN_SRCS))
TEST_SRCS := $(sort $(UNIT_SRCS) $(UNIT_SHARED) $(IT_SRCS) $(IT_SHARED) $(SIM_SRCS) \
	       $(BENCH_SRCS) $(BENCH_SHARED) $(REPORT_SRC) $(FUZZ_SRCS) $(FUZZ_SHARED) $(PRELOAD_SRCS) \
	       $(STANDIN_SRCS) $(FAKE_LT_SRCS) $(GPU_SRCS) $(ARMED_SRCS))
# These have points where a test can make them fail: they are compiled a second time, with
# KVMM_TEST_FAULTS, for tests and for the daemons of tests.
POINT_SRCS := $(shell grep -lE 'kvmm/fault\.h|swapd/shim\.h' $(PROG_SRCS) /dev/null 2>/dev/null)

# A file with a main() is linked into its program and stays out of the archives.
MAINS := $(shell grep -lE '^int main[[:punct:]]' $(PROG_SRCS) /dev/null 2>/dev/null)
body = $(filter-out $(MAINS),$(1))

# ---------------------------------------------------------------------- flags

CFLAGS ?= -O2 -g
# Most of a build compiles tests, and optimizing the tests' own code saves no time.
TEST_CFLAGS := $(if $(filter file,$(origin CFLAGS)),-O1)
KV_CPPFLAGS := -Iinclude -I. -D_GNU_SOURCE= $(CPPFLAGS)
KV_CFLAGS := -std=gnu11 -pthread -fno-strict-aliasing -fno-common
KV_LDFLAGS := -pthread -Wl,--as-needed

WARN := -Wall -Wextra -Wno-unused-parameter -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wshadow -Wvla -Wpointer-arith -Wwrite-strings \
	-Wdeclaration-after-statement -Wimplicit-fallthrough
ifneq ($(W),0)
WARN += -Werror -Wformat=2 -Wno-format-nonliteral -Wundef -Wmissing-declarations
ifeq ($(findstring clang,$(CC)),)
WARN += -Wduplicated-cond -Wduplicated-branches -Wlogical-op
endif
# Instrumented code confuses the flow analysis of gcc.
WARN += $(if $(D),-Wno-error=maybe-uninitialized -Wno-error=stringop-overflow)
endif

SAN_asan  := -fsanitize=address -fno-omit-frame-pointer
SAN_ubsan := -fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_san   := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# tsan does not know fences.  They stand between processes, where tsan sees nothing.
SAN_tsan  := -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
SAN := $(SAN_$(D))

# Arithmetic that is the same on every machine: no contraction to FMA.
KERN_CFLAGS := $(if $(filter san asan,$(D)),-O2,-O3) -ffp-contract=off
# Unrolled loops have thousands of loads.  So address checks of large functions are calls,
# and pointer overflow is not checked: else these few files take a third of a sanitized
# build.  With -O3 a product for two rows was such a function, and seven times as slow.
ifeq ($(findstring clang,$(CC)),)
KERN_CFLAGS += $(if $(filter san asan,$(D)),--param asan-instrumentation-with-call-threshold=500)
endif
KERN_CFLAGS += $(if $(filter san ubsan,$(D)),-fno-sanitize=pointer-overflow)
# No contraction either: a seed gives the same tokens on every machine.
SAMPLER_CFLAGS := -ffp-contract=off
VARIANT_base   :=
VARIANT_avx2   := -mavx2 -mfma -mf16c
VARIANT_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512
# The variant of fast mode: bf16 dot products.
VARIANT_avx512bf16 := $(VARIANT_avx512) -mavx512bf16 -DKERN_FAST
# Products of bytes, in the one file that is entered only on CPUs that have them.
INTS_avx512    := -mavx512vnni
INTS_avx512bf16 := -mavx512vnni
VARIANTS := base $(if $(filter x86_64,$(shell uname -m)),avx2 avx512 avx512bf16)

# Libraries of each program; -pthread is always there.
# Found when kvmm is linked: `make deps` may have to install it.
LIBS_zmq        = $(shell echo '\#include <zmq.h>' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo -lzmq)
LIBS_kvmm       = -lnuma -lseccomp -lcap-ng $(LIBS_zmq)
LIBS_kvmm-hold := -luring -lseccomp -lcap-ng
LIBS_kvctl     := -ljansson
LIBS_kvmm-proc := -lfuse3 -lseccomp -lcap-ng
LIBS_kvtop     := -lncursesw -ltinfo -lm
LIBS_swapd     := -luring -lseccomp -lcap-ng
LIBS_kvrt      := -ljansson -lpcre2-8 -lutf8proc -levent_core -lm
LIBS_report    := -ljansson
# pkg-config runs when the first test is linked: `make deps` may have to install it.
LIBS_tests      = $(LIBS_kvmm) $(LIBS_kvmm-hold) $(LIBS_kvctl) $(LIBS_kvtop) $(LIBS_swapd) $(LIBS_kvrt) -ldl \
		  $(shell $(PKG_CONFIG) --libs check)

# -------------------------------------------------------------------- objects

V_SRCS := $(filter kernels/cpu/v_%,$(KERN_SRCS))
# $(call objs,sources): their objects; a v_ source has one object a variant
objs = $(patsubst %.c,$(B)/obj/%.o,$(filter-out $(V_SRCS),$(1))) \
       $(foreach v,$(VARIANTS),$(patsubst %.c,$(B)/obj/%.$(v).o,$(filter $(V_SRCS),$(1))))

# $(call armed,sources): the same with the points of POINT_SRCS
armed = $(call objs,$(filter-out $(POINT_SRCS),$(1))) $(patsubst %.c,$(B)/obj/faults/%.o,$(filter $(POINT_SRCS),$(1)))

ALL_OBJS := $(call objs,$(PROG_SRCS) $(TEST_SRCS)) $(call armed,$(POINT_SRCS))
STANDIN_OBJS := $(call objs,$(STANDIN_SRCS)) $(patsubst %.cpp,$(B)/obj/%.o,$(STANDIN_CXX)) \
		$(patsubst %.cu,$(B)/obj/%.shim.o,$(STANDIN_CU))
IMAGE_OBJ := $(if $(wildcard kernels/cuda/image.S),$(B)/obj/kernels/cuda/image.o)

# Device code for the CPU: no contraction, so that products are rounded as they are
# written.  It is never sanitized: it switches between stacks of its own as threads, which
# no sanitizer follows, and it is loaded into programs of every kind.  Its few thread-local
# bytes come from the room that every process keeps: with those of a library that is loaded
# late, LeakSanitizer misreads lists of the C library (signal 11 in its tracer).
STANDIN_TLS := -ftls-model=initial-exec
SHIM_CXXFLAGS := -std=c++17 -O2 -g -fPIC $(STANDIN_TLS) -fvisibility=hidden -fno-exceptions -fno-rtti -fno-math-errno \
		 -fno-threadsafe-statics -fno-strict-aliasing -ffp-contract=off -fno-sanitize=all \
		 -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-parameter $(if $(filter-out 0,$(W)),-Werror)
# Accesses that fault on a GPU, and operations that CUDA leaves undefined, each raise a
# trap that names the line.
SHIM_TRAPS := -fsanitize=alignment,bounds,shift -fsanitize-undefined-trap-on-error \
	      -fno-crossjumping -fno-tree-tail-merge
shim_cxx = $(CXX) $(filter-out -D_GNU_SOURCE%,$(KV_CPPFLAGS)) -DKVMM_SHIM $(SHIM_CXXFLAGS) -MMD -MP

# One stamp for the flags, one for the list of files: a change of either remakes the
# files that depend on it.
CC_LINE := $(CC) $(KV_CPPFLAGS) $(KV_CFLAGS) $(CFLAGS) $(WARN) $(SAN)
$(B)/.flags: FLAGS_TEXT := $(CC_LINE) | $(KERN_CFLAGS) | $(TEST_CFLAGS) | $(value CORE_CFLAGS) | $(LDFLAGS) $(KV_LDFLAGS) | $(CXX) $(SHIM_CXXFLAGS) $(SHIM_TRAPS)
# A program or an archive has all sources of its folders; a test has one source, by name.
$(B)/.sources: FLAGS_TEXT := $(filter-out $(UNIT_SRCS) $(IT_SRCS) $(BENCH_SRCS) $(FUZZ_SRCS) $(PRELOAD_SRCS), \
			       $(PROG_SRCS) $(TEST_SRCS)) $(STANDIN_CXX) $(STANDIN_CU)
$(B)/.nvcc: FLAGS_TEXT := $(if $(NVCC),$(NVCC) $(CUDA_ARCHS)) $(CUDA_SRCS)
$(B)/.flags $(B)/.sources $(B)/.nvcc: $(if $(COUNTING),,FORCE)
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $@ || \
		echo '$(subst ','\'',$(FLAGS_TEXT))' >$@

# The checker of C=1, chosen when it is first used.
CHECKER = $(or $(if $(shell command -v sparse 2>/dev/null),sparse -Wno-decl $(KV_CPPFLAGS)),\
	  $(if $(shell command -v cppcheck 2>/dev/null),cppcheck --quiet \
	  --enable=warning$(comma)portability --inline-suppr --suppress=missingIncludeSystem \
	  -Iinclude -I. -D__x86_64__ -D__linux__))
comma := ,
ifeq ($(C),0)
run_checker =
else
run_checker = $(if $(CHECKER),$(Q)$(CHECKER) $<,\
	@echo '  CHECK   $<: neither sparse nor cppcheck is installed')
endif
ifeq ($(C),2)
$(ALL_OBJS): FORCE
endif

# Flags of libfuse3: pkg-config runs when the first file that needs them is compiled.
PROCFS_CFLAGS = $(shell $(PKG_CONFIG) --cflags fuse3)
# More flags for the core, for `make coverage`.
CORE_CFLAGS :=
cc_flags = $(CC_LINE) $(if $(filter kernels/%,$<),$(KERN_CFLAGS)) \
	   $(if $(filter tests/unit/% tests/integration/%,$<),$(TEST_CFLAGS) -include tests/mark.h) \
	   $(if $(filter tests/% $(B)/obj/faults/%,$< $@),-DKVMM_TEST_FAULTS) \
	   $(if $(filter runtime/sampler/%,$<),$(SAMPLER_CFLAGS)) \
	   $(if $(filter kvmm/procfs/%,$<),$(PROCFS_CFLAGS)) \
	   $(if $(filter kvmm/core/%,$<),$(CORE_CFLAGS)) \
	   $(if $(filter tests/preload/% tests/standin/%,$<),-fPIC -fno-sanitize=all $(STANDIN_TLS)) \
	   $(if $(filter tests/standin/%,$<),-fvisibility=hidden) \
	   $(if $(filter %/check_cuda_blaslt.c,$<),$(CUBLASLT_H)) \
	   $(if $(filter %/probe_kernels.c,$<),$(if $(GPU_IMAGE),-DPROBE_FATBIN='"$(GPU_IMAGE)"')) -MMD -MP
define cc_object
	$(call say,CC,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(cc_flags) $(1) -c -o $@ $<
	$(run_checker)
endef

# A static rule for the objects of each variant, before the pattern rule below.
$(foreach v,$(VARIANTS),$(eval \
$$(filter %.$(v).o,$$(ALL_OBJS)): $$(B)/obj/%.$(v).o: %.c $$(B)/.flags | toolchain ; \
	$$(call cc_object,-DKERN_VARIANT=$(v) $$(VARIANT_$(v)) \
	   $$(if $$(filter %/v_gemm_ints.c,$$<),$$(INTS_$(v))))))
$(B)/obj/faults/%.o: %.c $(B)/.flags | toolchain
	$(call cc_object)
$(B)/obj/pic/%.o: %.c $(B)/.flags | toolchain
	$(call cc_object,-fPIC -fvisibility=hidden -ffunction-sections)
$(B)/obj/%.o: %.c $(B)/.flags | toolchain
	$(call cc_object)

$(B)/obj/%.o: %.cpp $(B)/.flags
	$(call say,CXX,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(shim_cxx) -c -o $@ $<

$(B)/obj/%.shim.o: %.cu $(B)/.flags
	$(call say,CXX,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(shim_cxx) $(SHIM_TRAPS) -x c++ -c -o $@ $<

# GPUs before the first of CUDA_ARCHS and after its last run the PTX.  Each file is one
# module, so that files are compiled in parallel and only when they change.  A sanitized
# build has no device code: it cannot be sanitized.
ifeq ($(NVCC)$(D),$(NVCC))
ifneq ($(and $(NVCC),$(CUDA_SRCS)),)
FATBINS := $(patsubst %.cu,$(B)/obj/%.fatbin,$(CUDA_SRCS))
endif
endif
$(FATBINS): $(B)/obj/%.fatbin: %.cu $(B)/.nvcc
	$(call say,NVCC,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -O3 -lineinfo -Iinclude -I. \
		$(if $(filter-out 0,$(W)),-Werror all-warnings) \
		$(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
		-gencode arch=compute_80,code=compute_80 -MMD -MP -MF $@.d -fatbin -o $@ $<

# The files that image.S includes, one IMAGE() each.
$(B)/obj/kernels/cuda/images.h: $(FATBINS) $(B)/.sources $(B)/.nvcc
	@mkdir -p $(@D)
	@for f in $(FATBINS); do echo "IMAGE \"$$f\""; done >$@

$(IMAGE_OBJ): $(B)/obj/%.o: %.S $(B)/obj/kernels/cuda/images.h $(B)/.flags
	$(call say,AS,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(CC) -I$(B)/obj/kernels/cuda -c -o $@ $<

-include $(wildcard $(patsubst %.o,%.d,$(ALL_OBJS) $(STANDIN_OBJS) $(CLIENT_SRCS:%.c=$(B)/obj/pic/%.o)) $(addsuffix .d,$(FATBINS)))

# ------------------------------------------------------------------- archives

# $(call archive,name,sources,objects): for tests, with points
define archive
ifneq ($(strip $(call body,$(2))),)
ARCHIVES += $(B)/lib/lib$(1).a
$(B)/lib/lib$(1).a: $(call $(or $(3),armed),$(call body,$(2)))
endif
endef
$(eval $(call archive,lib,$(LIB_SRCS)))
$(eval $(call archive,faults,$(ARMED_SRCS)))
$(eval $(call archive,core,$(CORE_SRCS)))
$(eval $(call archive,kvmmd,$(SHELL_SRCS)))
$(eval $(call archive,hold,$(HOLD_SRCS)))
$(eval $(call archive,tools,$(TOOL_SRCS)))
$(eval $(call archive,swapd,$(SWAPD_SRCS)))
$(eval $(call archive,sandbox,$(BOX_SRCS),objs))
$(eval $(call archive,runtime,$(filter-out $(CLIENT_SRCS),$(RT_SRCS))))
$(eval $(call archive,kernels,$(KERN_SRCS)))
$(B)/lib/libkernels.a: $(IMAGE_OBJ)
$(eval $(call archive,unit,$(UNIT_SHARED)))
$(eval $(call archive,integration,$(IT_SHARED)))
$(eval $(call archive,bench,$(BENCH_SHARED)))
$(eval $(call archive,fuzz,$(FUZZ_SHARED)))
$(eval $(call archive,client,$(CLIENT_SRCS) $(LIB_SRCS),objs))

$(ARCHIVES): $(B)/.sources
	$(call say,AR,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

# ------------------------------------------------------------------ libkvmm

# The client library, for programs of others: a shared library, and an archive of one
# object.  Both have the names of the map alone, and only the objects that a client needs.
# The version of the name is that of the ABI.
API_SRCS := $(if $(CLIENT_SRCS),$(CLIENT_SRCS) lib/cudrv.c lib/rundir.c)
API_MAP := runtime/libkvmm/libkvmm.map
API_OBJS := $(API_SRCS:%.c=$(B)/obj/pic/%.o)
API_ABI := $(shell sed -n 's/^.define KVMM_ABI_VERSION[[:space:]]*\([0-9]*\).*/\1/p' include/uapi/kvmm.h 2>/dev/null)
SONAME := libkvmm.so.$(API_ABI)
LIBKVMM := $(if $(API_SRCS),$(B)/lib/libkvmm.a $(B)/lib/$(SONAME))

$(B)/lib/libkvmm.a: $(API_OBJS) $(API_MAP) $(B)/.sources
	$(call say,AR,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(CC) -r -nostdlib -o $(B)/lib/libkvmm.o $(API_OBJS)
	$(Q)sed -n 's/^\t\t\(kvmm_[a-z_]*\);/\1/p' $(API_MAP) >$(B)/lib/libkvmm.names
	$(Q)$(OBJCOPY) --keep-global-symbols=$(B)/lib/libkvmm.names $(B)/lib/libkvmm.o
	$(Q)$(AR) rcs $@ $(B)/lib/libkvmm.o

# Without a version the name is a link for compilers.
$(B)/lib/$(SONAME): $(API_OBJS) $(API_MAP) $(B)/.sources
	$(call link,-shared -Wl$(comma)-soname$(comma)$(SONAME) -Wl$(comma)--version-script=$(API_MAP) \
		-Wl$(comma)-z$(comma)noexecstack -Wl$(comma)--gc-sections $(if $(D),,-Wl$(comma)-z$(comma)defs))
	$(Q)ln -sf $(SONAME) $(B)/lib/libkvmm.so

# ---------------------------------------------------------------- MPI plugin

# kvrt opens it for a group of ranks.  It has the ABI of one MPI, so it is never sanitized,
# and it is left out where no mpicc is.
MPI_PLUGIN := $(if $(MPI_SRC),$(if $(MPICC),$(B)/lib/kvrt-mpi.so))
$(B)/lib/kvrt-mpi.so: $(MPI_SRC) runtime/ranks/mpi_plugin.h include/kvmm/types.h $(B)/.flags
	$(call say,MPICC,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	$(Q)$(MPICC) $(KV_CPPFLAGS) $(KV_CFLAGS) $(CFLAGS) -Wall -Wextra $(if $(filter-out 0,$(W)),-Werror) \
		-fPIC -fvisibility=hidden -shared $(LDFLAGS) -o $@ $<

# ------------------------------------------------------------------- programs

# $(call program,name,source of main,sources)
define program
ifneq ($(strip $(2)),)
PROGS += $(B)/$(1)
$(B)/$(1): $(call objs,$(2) $(call body,$(3)))
endif
endef
$(eval $(call program,kvmm,$(wildcard kvmm/main.c),$(CORE_SRCS) $(SHELL_SRCS) $(LIB_SRCS)))
$(eval $(call program,kvmm-hold,$(filter $(HOLD_SRCS),$(MAINS)),$(HOLD_SRCS) $(LIB_SRCS)))
$(eval $(call program,kvctl,$(wildcard kvmm/tools/kvctl.c),$(KVCTL_SRCS) $(TOOL_SHARED) $(LIB_SRCS)))
$(eval $(call program,kvtop,$(wildcard kvmm/tools/kvtop.c),$(KVTOP_SRCS) $(TOOL_SHARED) $(LIB_SRCS)))
$(eval $(call program,kvmm-proc,$(wildcard kvmm/procfs/main.c),$(PROCFS_SRCS) $(LIB_SRCS)))
$(eval $(call program,swapd,$(wildcard swapd/main.c),$(SWAPD_SRCS) $(LIB_SRCS)))
$(eval $(call program,kvrt,$(wildcard runtime/kvrt.c),$(RT_SRCS) $(KERN_SRCS) $(LIB_SRCS)))

$(B)/kvrt: $(IMAGE_OBJ)

# $(call link,libraries): objects first, then the archives as one group
define link
	$(call say,LD,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(KV_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
		$(if $(filter %.a,$^),-Wl$(comma)--start-group $(filter %.a,$^) -Wl$(comma)--end-group) $(1)
endef

# The archive libsandbox.a: kvmm-hold takes the part without the filter, and no libseccomp.
$(filter $(B)/kvmm $(B)/kvmm-hold $(B)/swapd $(B)/kvmm-proc,$(PROGS)): $(filter %/libsandbox.a,$(ARCHIVES))

# Daemons that a test can make fail, in a directory with links to the other programs, since
# kvmm-hold starts the programs beside it.
ARMED_PROGS := $(if $(ARMED_SRCS),$(patsubst $(B)/%,$(B)/faults/%,$(filter $(B)/kvmm $(B)/kvmm-hold $(B)/swapd,$(PROGS))))
$(B)/faults/kvmm: $(call armed,kvmm/main.c $(call body,$(CORE_SRCS) $(SHELL_SRCS) $(LIB_SRCS)))
$(B)/faults/kvmm-hold: $(call armed,$(filter $(HOLD_SRCS),$(MAINS)) $(call body,$(HOLD_SRCS) $(LIB_SRCS)))
$(B)/faults/swapd: $(call armed,swapd/main.c $(call body,$(SWAPD_SRCS) $(LIB_SRCS)))
$(ARMED_PROGS): $(filter %/libfaults.a %/libsandbox.a,$(ARCHIVES)) $(B)/.sources

$(PROGS): $(B)/.sources
$(PROGS) $(ARMED_PROGS):
	$(call link,$(LIBS_$(@F)))
	$(if $(filter $@,$(ARMED_PROGS)),$(Q)ln -sf ../kvmm-proc ../kvctl ../kvtop ../kvrt $(@D))

UNIT_PROGS  := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRCS))
IT_PROGS    := $(patsubst tests/integration/%.c,$(B)/tests/%,$(IT_SRCS))
BENCH_PROGS := $(patsubst tests/bench/%.c,$(B)/tests/%,$(BENCH_SRCS))
SIM_PROG    := $(if $(SIM_SRCS),$(B)/tests/sim)
REPORT_PROG := $(if $(REPORT_SRC),$(B)/tests/bench-report)
PRELOADS    := $(patsubst tests/preload/%.c,$(B)/tests/%.so,$(PRELOAD_SRCS))
STANDIN     := $(if $(STANDIN_SRCS),$(B)/tests/standin/libcuda.so.1)
FAKE_LT     := $(if $(FAKE_LT_SRCS),$(B)/tests/standin/libcublasLt.so)
FUZZ_PROGS  := $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(FUZZ_SRCS))
TEST_PROGS  := $(UNIT_PROGS) $(IT_PROGS) $(BENCH_PROGS) $(SIM_PROG) $(REPORT_PROG) $(FUZZ_PROGS) \
	       $(PRELOADS) $(STANDIN) $(FAKE_LT)

# A test links only the archives that it needs, so that other changes do not rebuild it;
# if one is missing here, the linker names the undefined symbols.  A program that a test
# runs, or a library that it opens, stands behind a |.
# $(call archives,NAMES): those of them that exist in this tree
archives = $(filter $(patsubst %,$(B)/lib/lib%.a,$(1) faults),$(ARCHIVES))
unit_tests = $(filter $(addprefix $(B)/tests/check_,$(1)),$(UNIT_PROGS))
# $(eval $(call unit,TESTS,NAMES)): a test in no such line links all archives
define unit
UNIT_NAMED += $(call unit_tests,$(1))
$(call unit_tests,$(1)): $(call archives,$(2))
endef
$(eval $(call unit,core_% admin_act probes,core lib))
$(eval $(call unit,copier dev_cuda door events hostpool ipc_parts memory metrics proc% serve swap_mm view_spend,kvmmd core hold lib))
$(eval $(call unit,admin ipc ipc_doc ipc_life ipc_start libkvmm%,unit client))
$(eval $(call unit,swapd%,swapd hold lib))
$(eval $(call unit,hold sandbox,hold sandbox lib))
$(eval $(call unit,kvctl kvtop save,tools lib))
$(eval $(call unit,cuda_append cuda_attn cuda_blaslt cuda_gemm cuda_parts cuda_row kernels%,unit kernels lib))
$(eval $(call unit,cuda_sample model%,unit runtime kernels client lib))
$(eval $(call unit,adjust ask bench% chat engine% gguf liars logprob ranks row run safetensors sampler search server_%,runtime kernels client))
$(eval $(call unit,template% tokenizer%,runtime))
$(eval $(call unit,evict_peers,bench core client))
$(eval $(call unit,beams config cudrv fault log mark opts places ring seq shim standin% tenant_opt uapi view,lib))
$(filter-out $(UNIT_NAMED),$(UNIT_PROGS)): $(filter-out %/libintegration.a %/libbench.a %/libfuzz.a,$(ARCHIVES))
$(call unit_tests,admin ipc ipc_life ipc_start probes): | $(PROGS) $(ARMED_PROGS)
$(call unit_tests,cuda_% dev_cuda kernels% model_cuda% model_groups shim standin%): | $(STANDIN) $(FAKE_LT)
$(UNIT_PROGS): $(B)/tests/%: $(B)/obj/tests/unit/%.o
$(B)/tests/check_beams: $(call objs,tests/bench/beams.c)

$(IT_PROGS): $(B)/tests/%: $(B)/obj/tests/integration/%.o $(call archives,integration swapd sandbox client) \
		| $(PROGS) $(ARMED_PROGS) $(PRELOADS) $(STANDIN) $(FAKE_LT)
$(filter %/it_adapters %/it_beam %/it_mpi_ranks %/it_pressure,$(IT_PROGS)): $(call archives,runtime kernels)
$(filter %/it_hostpool,$(IT_PROGS)): $(call archives,kvmmd)
$(filter %/it_mpi_ranks,$(IT_PROGS)): | $(MPI_PLUGIN)

$(BENCH_PROGS): $(B)/tests/%: $(B)/obj/tests/bench/%.o $(call archives,bench swapd client)
bench_tests = $(filter $(addprefix $(B)/tests/bench_,$(1)),$(BENCH_PROGS))
$(call bench_tests,core evict fair groups groups_load records replay scale share waste waste_groups): $(call archives,core)
$(call bench_tests,copier): $(call archives,kvmmd core)
$(call bench_tests,hostpool): $(call archives,kvmmd)
$(call bench_tests,keep_serve overlap ttft_tiers): $(call objs,tests/integration/http.c)
$(call bench_tests,adapters blocks decode gap gemm kernels load ranks step tokenizer): $(call archives,runtime kernels)
# Calls that bench_step directs to a daemon or to the pool of own_pool.h.
STEP_WRAP := attach backend confirm detach device_failed draining info next_event poll_extents pool prep reap \
	     release resumed seq_status seq_table strerror_attach submit wait
$(B)/tests/bench_step: KV_LDFLAGS += $(STEP_WRAP:%=-Wl$(comma)--wrap=kvmm_%)

$(SIM_PROG): $(call objs,$(SIM_SRCS)) $(call archives,core lib) $(B)/.sources

# Some targets test the runtime and need only engine.c of tests/fuzz.  The others test the
# daemons: functions of tests/fuzz replace some of their calls, and names that both
# kvmm-hold and the daemon define must not be linked twice.
$(FUZZ_PROGS): $(B)/tests/%: $(B)/obj/tests/fuzz/%.o
FUZZ_WRAP := mm_call segment_create segment_destroy kv_log kv_log_spend unlink fork exit
FUZZ_RT := $(filter %/fuzz_adapter %/fuzz_template %/fuzz_config %/fuzz_gguf %/fuzz_gguf_model %/fuzz_quantized %/fuzz_safetensors %/fuzz_tokenizer %/fuzz_http,$(FUZZ_PROGS))
# Of the targets for the runtime, this one uses the common main().
$(filter %/fuzz_http,$(FUZZ_PROGS)): $(B)/obj/tests/fuzz/engine.o
$(FUZZ_RT): $(call objs,tests/fuzz/engine.c) $(call archives,runtime kernels client)
FUZZ_DAEMONS := $(filter-out $(FUZZ_RT),$(FUZZ_PROGS))
$(FUZZ_DAEMONS): $(call archives,fuzz lib core kvmmd hold tools swapd sandbox)
$(FUZZ_DAEMONS): KV_LDFLAGS += $(FUZZ_WRAP:%=-Wl$(comma)--wrap=%)

$(UNIT_PROGS) $(IT_PROGS) $(BENCH_PROGS) $(SIM_PROG) $(FUZZ_PROGS):
	$(call link,$(LIBS_tests))
$(REPORT_PROG): $(call objs,$(REPORT_SRC)) $(B)/.sources
	$(call link,$(LIBS_report))
$(PRELOADS): $(B)/tests/%.so: $(B)/obj/tests/preload/%.o $(B)/.sources
	$(call link,-shared -ldl)
$(PRELOADS): SAN :=
ifeq ($(D),)
$(STANDIN): $(STANDIN_OBJS) $(B)/.sources
	$(call link,-shared -Wl$(comma)-soname$(comma)libcuda.so.1 -Wl$(comma)-z$(comma)noexecstack -ldl -lm)
$(FAKE_LT): $(call objs,$(FAKE_LT_SRCS)) $(B)/.sources
	$(call link,-shared -ldl)
else
# The stand-ins are never sanitized, so those of the build without D= are copied.
$(STANDIN) $(FAKE_LT): plain-standin
	@mkdir -p $(@D)
	@cmp -s $(O)/$(@:$(B)/%=%) $@ || cp $(O)/$(@:$(B)/%=%) $@
plain-standin:
	$(Q)$(MAKE) --no-print-directory D= $(patsubst $(B)/%,$(O)/%,$(STANDIN) $(FAKE_LT))
endif

# --------------------------------------------------------------------- on a GPU

# These programs run on machines that have only a compiler, nvcc and a driver, so they
# are linked to no other library.  Without nvcc they have no device code, and run only
# over a library that stands in for the driver.
GPU_SHARED := $(filter-out tests/gpu/probe% tests/gpu/bench%,$(GPU_SRCS)) tests/gpu/probe_kernels.c
GPU_PROGS  := $(if $(wildcard tests/gpu/probe.c),$(B)/gpu/probe) \
	      $(if $(wildcard tests/gpu/bench.c),$(B)/gpu/bench)
GPU_IMAGE  := $(if $(NVCC),$(B)/gpu/probe.fatbin)
GPU_CODE   := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	      -gencode arch=compute_80,code=compute_80

$(B)/gpu/probe.fatbin: $(GPU_KERNS) $(B)/.nvcc
	$(call say,NVCC,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -O3 -lineinfo -Iinclude -I. $(if $(filter-out 0,$(W)),-Werror all-warnings) \
		$(GPU_CODE) -MMD -MP -MF $@.d -fatbin -o $@ $(filter %.cu,$^)
-include $(wildcard $(B)/gpu/*.d)

$(B)/obj/tests/gpu/probe_kernels.o: $(GPU_IMAGE)
$(B)/gpu/probe: $(call objs,$(filter tests/gpu/probe%,$(GPU_SRCS)) $(GPU_SHARED) lib/cudrv.c) \
		$(B)/.sources
	$(call link,-ldl -lm)
# The bench has ops and models in it, so it needs the libraries of kvrt.  Kernels are
# linked as objects: the table of ops has weak references, which pull nothing out of an
# archive.
$(B)/gpu/bench: $(call objs,$(filter tests/gpu/bench%,$(GPU_SRCS)) $(GPU_SHARED)) \
		$(call objs,$(KERN_SRCS)) $(IMAGE_OBJ) \
		$(call archives,runtime client) $(B)/.sources
	$(call link,$(LIBS_kvrt) -ldl)
TEST_PROGS += $(GPU_PROGS)

# -------------------------------------------------------------------- targets

.DEFAULT_GOAL := all
.PHONY: all tests systemd-check cuda toolchain deps run check check-full check-vllm check-llama check-quality soak check-style sim coverage mutants mutants-random bench fuzz \
	docs pages install uninstall clean help bench-progs bench-why why-progs core-tests gpu-probe gpu-check gpu-bench plain-standin \
	FORCE
FORCE:

all: $(PROGS) $(LIBKVMM) $(MPI_PLUGIN)
	@$(if $(SAID),printf '\033[K  BUILT   %s files\n' $(words $(SAID)),:)

tests: $(TEST_PROGS) docs
	@:

# The simulator and the unit tests of the core
core-tests: $(SIM_PROG) $(filter $(B)/tests/check_core_%,$(UNIT_PROGS))
	@:

bench-progs: $(BENCH_PROGS) $(REPORT_PROG)
	@:

toolchain:
	@command -v $(firstword $(CC)) >/dev/null || { \
		echo 'kvmm: error: $(firstword $(CC)) is not installed: run: make deps' >&2; exit 1; }

ifeq ($(CUDA_SRCS),)
cuda:
	@echo '  SKIP    cuda: this tree has no kernels/cuda/*.cu'
else ifeq ($(FATBINS),)
cuda:
	@echo '  SKIP    cuda: nvcc is not installed (looked in PATH and /usr/local/cuda/bin), or D= is set'
else
cuda: $(FATBINS)
	@:
endif

deps:
	@.ci/deps

# The second make finds the packages that deps installed, and uses all cores without -j.
SUBMAKE = --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(NPROC))
TEST_ENV = KVMM_TOP='$(CURDIR)' KVMM_BUILD='$(abspath $(B))' KVMM_SANITIZER='$(D)' \
	   CC='$(CC)' SEEDS='$(SEEDS)' KVMM_CONFIG=none

# exec: Ctrl-C, the usual end of the demo, would kill the shell, and make would complain.
run: deps
	$(Q)$(MAKE) $(SUBMAKE) all
	$(Q)$(TEST_ENV) exec kvmm/dist/demo $(B)

# Targets of SUITES that T names: T has globs of names, and wildcard takes globs.
named = $(if $(T),$(filter $(2),$(wildcard $(addprefix $(1),$(addsuffix $(3),$(T))))),$(2))
CHECK_unit = $(patsubst tests/unit/%.c,$(B)/tests/%,$(call named,tests/unit/,$(UNIT_SRCS),.c))
CHECK_sim = $(if $(call named,tests/,tests/sim),$(SIM_PROG))
CHECK_integration = $(patsubst tests/integration/%.c,$(B)/tests/%,$(call named,tests/integration/,$(IT_SRCS),.c))
# A script runs the programs; these scripts run tests too.
SCRIPTS_OF_TESTS := $(patsubst %,tests/scripts/%.sh,adopt-cuda bench-report bench-why cuda fuzz gpu points templates tokenizers)
scripts = $(call named,tests/scripts/,$(wildcard tests/scripts/*.sh),.sh)
CHECK_script = $(if $(scripts),all $(if $(filter $(SCRIPTS_OF_TESTS),$(scripts)),tests,docs)) \
	       $(if $(T)$(D),,cuda)
CHECK_GOALS = $(sort $(foreach s,$(SUITES),$(CHECK_$(s))))

check: KVMM_LEVEL := check
check-full: KVMM_LEVEL := full
soak: KVMM_LEVEL := soak
check check-full soak: deps
	@mkdir -p $(B) && date +%s >$(B)/.check-start
	$(Q)$(if $(CHECK_GOALS),$(MAKE) $(SUBMAKE) $(CHECK_GOALS) CUDA_ARCHS='$(CHECK_ARCHS)',:) || \
		{ printf '\nthe build failed\n0 passed, 1 failed\n'; exit 1; }
	$(Q)$(TEST_ENV) KVMM_TEST_LEVEL=$(KVMM_LEVEL) T='$(T)' tests/run $(SUITES)

sim: deps
	$(Q)$(MAKE) $(SUBMAKE) $(B)/tests/sim
	$(Q)$(TEST_ENV) $(B)/tests/sim $(if $(SEEDS),--seeds $(SEEDS))

# Not optimized, so that branches of the object are branches of the source; only the
# walkers, which run after every event, have -O1.
COV_CFLAGS = $(if $(filter kvmm/core/check%,$<),-O1,-O0) --coverage
COV := $(abspath $(O)/cov)
coverage: deps
	$(Q)$(MAKE) $(SUBMAKE) O='$(COV)' D= CC=gcc \
		CORE_CFLAGS='$$(COV_CFLAGS)' LDFLAGS='--coverage $(LDFLAGS)' core-tests
	$(Q)$(TEST_ENV) KVMM_BUILD='$(COV)' tests/coverage/run $(if $(SEEDS),--seeds $(SEEDS))

JOBS ?= $(NPROC)
NR ?= 100
mutants: deps
	$(Q)CC='$(CC)' tests/mutants/run --first --jobs $(JOBS)

mutants-random: deps
	$(if $(SEED),,$(error mutants-random: SEED=n is wanted))
	$(Q)CC='$(CC)' tests/mutants/run --random $(SEED) --nr $(NR) --jobs $(JOBS)

bench: deps
	$(Q)$(MAKE) $(SUBMAKE) all bench-progs
	$(Q)$(TEST_ENV) T='$(T)' tests/bench/run

why-progs: $(filter %/bench_why %/bench_step,$(BENCH_PROGS)) $(REPORT_PROG)
	@:

bench-why: deps
	$(Q)$(MAKE) $(SUBMAKE) all why-progs
	$(Q)$(TEST_ENV) tests/bench/why

# No deps: the machines of these targets install nothing.
gpu-probe:
	$(Q)$(MAKE) $(SUBMAKE) $(B)/gpu/probe
	$(Q)mkdir -p "$${OUT:-$(B)/gpu}"
	$(Q)PART='$(PART)' OUT="$${OUT:-$(B)/gpu}" $(B)/gpu/probe

# Not in check: it installs 6 GB into build/peers/vllm.
check-vllm: all
	$(Q)$(TEST_ENV) ROWS='$(ROWS)' tests/peers/vllm $(B)

# Not in check: it compiles llama.cpp in build/peers/llama.
check-llama: all
	$(Q)$(TEST_ENV) tests/peers/llama $(B)

# Not in check: it trains a model in build/peers/quality, and installs what that needs.
check-quality: all
	$(Q)$(TEST_ENV) TYPES='$(TYPES)' MINUTES='$(MINUTES)' tests/peers/quality $(B)

# Not in check: it needs root, mmdebstrap and Debian's archive.
systemd-check: all
	$(Q)$(TEST_ENV) tests/systemd/check

gpu-check:
	$(Q)$(TEST_ENV) T='$(T)' tests/gpu/check

gpu-bench:
	$(Q)$(MAKE) $(SUBMAKE) all $(B)/gpu/bench
	$(Q)mkdir -p "$${OUT:-$(B)/gpu}"
	$(Q)$(TEST_ENV) PART='$(PART)' OUT="$${OUT:-$(B)/gpu}" $(B)/gpu/bench

# Each fuzzer has its own compiler: its objects lie in build/fuzz-ENGINE.
SECS ?= 60
ENGINE ?= lib
fuzz:
	$(Q)tests/fuzz/run '$(T)' '$(SECS)' '$(ENGINE)'

check-style:
	$(Q).ci/check-style

CLIENT_HEADERS := $(wildcard include/libkvmm.h include/libkvmm_objects.h include/uapi/*.h include/kvmm/types.h)
VERSION = $(shell sed -n 's/^.define KVMM_VERSION[^"]*"\(.*\)"/\1/p' include/kvmm/version.h 2>/dev/null)

# The programs print these from their tables.
MAN8 := $(filter $(B)/kvmm $(B)/kvmm-hold $(B)/swapd $(B)/kvmm-proc,$(PROGS))
MAN1 := $(filter $(B)/kvctl $(B)/kvtop $(B)/kvrt,$(PROGS))
MAN_PAGES := $(MAN8:$(B)/%=$(B)/share/man/man8/%.8) $(MAN1:$(B)/%=$(B)/share/man/man1/%.1) \
	     $(B)/share/man/man5/kvmm.conf.5
COMPLETIONS := $(patsubst $(B)/%,$(B)/share/completions/%,$(MAN8) $(MAN1))
SAMPLES := $(B)/share/kvmm.conf $(if $(filter $(B)/kvrt,$(PROGS)),$(B)/share/kvrt.conf)
DOCS := $(MAN_PAGES) $(COMPLETIONS) $(SAMPLES)

# $(call print,NAME): a complete file or none, since make deletes that of a failed program
define print
	$(call say,GEN,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	$(Q)$< --print-$(1) >$@
endef
$(filter %.8,$(MAN_PAGES)): $(B)/share/man/man8/%.8: $(B)/%
	$(call print,man)
$(filter %.1,$(MAN_PAGES)): $(B)/share/man/man1/%.1: $(B)/%
	$(call print,man)
$(COMPLETIONS): $(B)/share/completions/%: $(B)/%
	$(call print,completion)
$(B)/share/man/man5/kvmm.conf.5: $(B)/kvmm
	$(call print,config-man)
# Lines that are set in the installed file stand below the key that they are of.
$(B)/share/kvmm.conf: $(B)/kvmm kvmm/dist/kvmm.conf
	$(call say,GEN,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	$(Q)$< --print-config | sed '/^#tenant = /r kvmm/dist/kvmm.conf' >$@
$(B)/share/kvrt.conf: $(B)/kvrt
	$(Q)$< serve --print-config >$@

# Units have the installed paths of the programs, and hold's capabilities from the list
# in sandbox.h, which is the only one.
UNITS := $(patsubst kvmm/dist/%.in,$(B)/share/%,$(wildcard kvmm/dist/*.in)) $(B)/share/kvmm@.service
# $(call unit,LINES,INSTANCE): LINES are one or gpu: whose lines of the source are taken
define unit
	@mkdir -p $(@D)
	$(Q)caps=$$(sed -n 's/^[[:space:]]*x(\([A-Z_]*\),.*/CAP_\1/p' include/kvmm/sandbox.h | xargs) && \
		sed -e 's|^@$(1)@||' -e '/^@[a-z]*@/d' -e 's|@bindir@|$(bindir)|' -e 's|@sbindir@|$(sbindir)|' \
			-e "s|@caps@|$$caps|" -e 's|@instance@|$(2)|' $< >$@
endef
$(B)/share/kvmm@.service: kvmm/dist/kvmm.service.in FORCE
	$(call unit,gpu,-%i)
$(filter-out %/kvmm@.service,$(UNITS)): $(B)/share/%: kvmm/dist/%.in FORCE
	$(call unit,one)
# Scripts of bpftrace have these paths too.
SCRIPTS_BT := $(patsubst kvmm/dist/bpftrace/%,$(B)/share/%,$(wildcard kvmm/dist/bpftrace/*.bt))
$(SCRIPTS_BT): $(B)/share/%: kvmm/dist/bpftrace/% FORCE
	@mkdir -p $(@D)
	$(Q)sed -e 's|@bindir@|$(bindir)|' -e 's|@sbindir@|$(sbindir)|' $< >$@
$(B)/share/libkvmm.pc: FORCE
	@mkdir -p $(@D)
	$(Q)printf '%s\n' 'Name: libkvmm' 'Description: client library of kvmm' \
		'Version: $(VERSION)' 'Cflags: -I$(includedir)/libkvmm' \
		'Libs: -L$(libdir) -lkvmm -pthread' >$@

# Texts with installed paths: made anew for every prefix, from the sources alone.
PLACED := $(UNITS) $(SCRIPTS_BT) $(B)/share/libkvmm.pc

# build.sh copies the Makefile to a tree that has none of these sources.
docs: $(if $(wildcard lib/opts_man.c),$(DOCS) $(PLACED))
	@:

# These are kept in the tree, so that a reader needs no build; doc-sources.sh of
# tests/scripts compares them with their sources.
FIGURES := $(patsubst %.fig,%.svg,$(wildcard Documentation/figures/*.fig))
$(FIGURES): %.svg: %.fig .ci/figure.awk
	$(call say,GEN,$@)
	$(Q)awk -f .ci/figure.awk $< >$@
# .ci/screenshot makes the source of this one.
SCREENS := $(patsubst %.screen,%.svg,$(wildcard Documentation/figures/*.screen))
$(SCREENS): %.svg: %.screen .ci/screen.awk
	$(call say,GEN,$@)
	$(Q)awk -f .ci/screen.awk $< >$@
Documentation/abi-reference.md: .ci/abi-reference.awk tests/data/uapi-layout.txt include/uapi/kvmm.h
	$(call say,GEN,$@)
	$(Q)awk -f $^ >$@
CORE_MAP := kvmm/core/ROOMS $(sort $(wildcard kvmm/core/*/*.c))
Documentation/core-files.md: .ci/core-map.awk $(CORE_MAP)
	$(call say,GEN,$@)
	$(Q)awk -f $^ >$@
pages: $(FIGURES) $(SCREENS) Documentation/abi-reference.md Documentation/core-files.md
	@:

BIN_PROGS  := $(filter $(B)/kvctl $(B)/kvrt $(B)/kvtop,$(PROGS))
SBIN_PROGS := $(filter $(B)/kvmm $(B)/kvmm-hold $(B)/swapd $(B)/kvmm-proc,$(PROGS))
PAGES := $(wildcard README.md LICENSE Documentation/*.md Documentation/measurements/*.md \
	   Documentation/measurements/*.json Documentation/figures/*.svg)
# Installed files, for install and uninstall: MODE:FILE:PLACE.
put = $(foreach f,$(2),$(1):$(f):$(3)/$(f:$(4)%=%))
INSTALLED = $(call put,755,$(BIN_PROGS),$(bindir),$(B)/) \
	    $(call put,755,$(SBIN_PROGS),$(sbindir),$(B)/) \
	    $(call put,644,$(filter %.a,$(LIBKVMM)),$(libdir),$(B)/lib/) \
	    $(call put,755,$(B)/lib/$(SONAME),$(libdir),$(B)/lib/) \
	    $(call put,755,$(MPI_PLUGIN),$(libdir)/kvmm,$(B)/lib/) \
	    $(call put,644,$(CLIENT_HEADERS),$(includedir)/libkvmm,include/) \
	    $(call put,644,$(B)/share/libkvmm.pc,$(libdir)/pkgconfig,$(B)/share/) \
	    $(call put,644,$(PAGES),$(docdir)) \
	    $(call put,644,$(MAN_PAGES),$(mandir),$(B)/share/man/) \
	    $(call put,644,$(COMPLETIONS),$(bashdir),$(B)/share/completions/) \
	    $(call put,644,$(SAMPLES),$(docdir)/examples,$(B)/share/) \
	    $(call put,644,$(UNITS),$(unitdir),$(B)/share/) \
	    $(call put,644,$(SCRIPTS_BT),$(docdir)/examples,$(B)/share/) \
	    $(foreach f,$(wildcard kvmm/dist/prometheus/* kvmm/dist/grafana/* kvmm/dist/kubernetes/*),644:$(f):$(docdir)/examples/$(notdir $(f))) \
	    644:kvmm/dist/sysusers.conf:$(sysusersdir)/kvmm.conf
# Directories that only kvmm uses.
OUR_DIRS = $(libdir)/kvmm $(docdir)/Documentation/measurements $(docdir)/Documentation/figures $(docdir)/Documentation $(docdir)/examples \
	   $(docdir) $(includedir)/libkvmm/uapi $(includedir)/libkvmm/kvmm $(includedir)/libkvmm \
	   $(confdir)/kvrt $(confdir)

# A file of options that exists belongs to the operator and stays.
install: $(if $(AS_IS),$(PLACED),all docs)
	$(call say,INSTALL,$(DESTDIR)$(prefix))
	$(Q)set -e; for f in $(INSTALLED); do \
		mode=$${f%%:*}; f=$${f#*:}; \
		install -D -m $$mode "$${f%%:*}" '$(DESTDIR)'"$${f#*:}"; done
	$(Q)ln -sf $(SONAME) '$(DESTDIR)$(libdir)/libkvmm.so'
	$(Q)install -d -m 755 '$(DESTDIR)$(confdir)/kvrt'
	$(Q)[ -e '$(DESTDIR)$(confdir)/kvmm.conf' ] || \
		install -m 644 $(B)/share/kvmm.conf '$(DESTDIR)$(confdir)'

# Remove the files that install would put there; nothing is built.
uninstall:
	$(call say,REMOVE,$(DESTDIR)$(prefix))
	$(Q)if cmp -s '$(DESTDIR)$(docdir)/examples/kvmm.conf' '$(DESTDIR)$(confdir)/kvmm.conf'; then \
		rm -f '$(DESTDIR)$(confdir)/kvmm.conf'; fi
	$(Q)set -e; for f in $(INSTALLED) libkvmm.so:$(libdir)/libkvmm.so; do rm -f '$(DESTDIR)'"$${f##*:}"; done
	$(Q)for d in $(OUR_DIRS); do \
		if [ -d '$(DESTDIR)'"$$d" ]; then rmdir --ignore-fail-on-non-empty '$(DESTDIR)'"$$d"; fi; done

# Remove only files that make made, so that O=/tmp does not remove /tmp.
clean:
	$(call say,CLEAN,$(O))
	$(Q)for b in $(if $(D),,$(addprefix $(O)/,san asan tsan ubsan cov)) $(B); do \
		rm -rf $$b/obj $$b/lib $$b/faults $$b/share $$b/tests $$b/gpu $$b/logs $$b/bench.json $$b/why.json $$b/coverage.txt $$b/.flags $$b/.sources \
			$$b/.check-start $(addprefix $$b/,kvmm kvmm-hold kvctl kvtop kvrt swapd kvmm-proc); \
		if [ -d $$b ]; then rmdir --ignore-fail-on-non-empty $$b; fi; done

help:
	@sed -n '/^# Targets/,/^$$/{s/^# \{0,1\}//;p}' Makefile
