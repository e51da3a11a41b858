# SPDX-License-Identifier: Apache-2.0
#
# kvmm - the memory manager of an LLM node
#
# Targets
#   all          programs and libkvmm.a (the default)
#   run          install what is missing, build, and show the demo
#   check        install what is missing, build, and run every test (5 minutes)
#   check-full   the same with more seeds and longer tests (15 minutes)
#   soak         the same with all the counts that are claimed (hours)
#   check-style  the rules of the source text; prints file:line: rule
#   sim          the simulator alone: make sim SEEDS=1000
#   coverage     what the tests reach of kvmm/core: a table, build/cov/coverage.txt
#   fuzz         one fuzz target with a fuzzer: make fuzz T=sqe SECS=600 ENGINE=lib|afl
#   bench        every benchmark: a table here, build/bench.json for programs
#   tests        build all tests and benchmarks, run none
#   cuda         compile kernels/cuda/*.cu, or say why not
#   deps         install the Debian packages named in .ci/packages
#   install      programs, library, headers: prefix=/usr/local DESTDIR=
#   clean        remove what was built for this O= (and its D= builds)
#   help         print this text
#
# Variables
#   V=1          print whole commands
#   W=1          more warnings, and every warning is an error
#   C=1          also run sparse (else cppcheck) on each file compiled, C=2 on all
#   D=NAME       asan, tsan or ubsan: sanitized build in build/NAME
#   O=DIR        put all output in DIR instead of build
#   T='GLOB..'   check, bench: only tests with such names, T='check_ring it_*'
#   SUITES='..'  check: which kinds of tests: unit sim integration script
#   SEEDS=N      sim, check, coverage: number of seeds that the simulator replays
#   CC CFLAGS LDFLAGS NVCC CUDA_ARCHS as usual; CFLAGS replaces only -O2 -g
#
# Sources are found by wildcard, so a new file needs no line here:
#   kvmm/{core,ipc,dev,proc,lib}/*.c, kvmm/main.c           -> kvmm
#   kvmm/hold/*.c, kvmm/lib/*.c                             -> kvmm-hold
#   kvmm/sandbox/*.c                                        -> kvmm, kvmm-hold, swapd
#   kvmm/tools/*.c, kvmm/lib/*.c                            -> kvctl
#   swapd/*.c, kvmm/lib/*.c                                 -> swapd
#   runtime/**.c, kernels/{,ref,cpu}/*.c, kvmm/lib/*.c      -> kvrt
#   tests/unit/check_X.c        -> tests/check_X, with libcheck and all of the above
#   tests/integration/it_X.c    -> tests/it_X, with the other .c files beside it
#   tests/preload/X.c           -> tests/X.so, to be preloaded by tests
#   tests/sim/*.c               -> tests/sim
#   tests/fuzz/fuzz_X.c         -> tests/fuzz_X, with the runtime
#   tests/bench/bench_X.c       -> tests/bench_X, with the other .c files beside it
# A program whose main() is not there is left out.
#
# kernels/cpu/v_X.c is compiled three times on x86-64, with KERN_VARIANT defined
# as base, avx2 and avx512 and the flags that go with it (elsewhere only as
# base); the code there appends the macro to the names it exports.

O ?= build
V ?= 0
W ?= 0
C ?= 0
D ?=
T ?=
SEEDS ?=
SUITES ?= unit sim integration script

ifneq ($(filter-out asan tsan ubsan,$(D)),)
$(error D=$(D): want asan, tsan or ubsan)
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
docdir     ?= $(prefix)/share/doc/kvmm

# ---------------------------------------------------------------- how it looks

ifeq ($(V),0)
Q := @
else
Q :=
endif
# $(call say,CC,name): the short line of a quiet build
ifneq ($(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
say = @:
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
CUDA_ARCHS ?= 80 90
NPROC = $(shell nproc 2>/dev/null || echo 2)

# -------------------------------------------------------------------- sources

DAEMON_SRCS := $(sort $(wildcard kvmm/core/*.c kvmm/ipc/*.c kvmm/dev/*.c kvmm/proc/*.c))
HOLD_SRCS   := $(sort $(wildcard kvmm/hold/*.c))
LIB_SRCS    := $(sort $(wildcard kvmm/lib/*.c))
BOX_SRCS    := $(sort $(wildcard kvmm/sandbox/*.c))
TOOL_SRCS   := $(sort $(wildcard kvmm/tools/*.c))
SWAPD_SRCS  := $(sort $(wildcard swapd/*.c))
RT_SRCS     := $(sort $(wildcard runtime/*.c runtime/*/*.c))
CLIENT_SRCS := $(sort $(wildcard runtime/libkvmm/*.c))
KERN_SRCS   := $(sort $(wildcard kernels/*.c kernels/ref/*.c kernels/cpu/*.c))
CUDA_SRCS   := $(sort $(wildcard kernels/cuda/*.cu))

UNIT_SRCS   := $(sort $(wildcard tests/unit/check_*.c))
IT_SRCS     := $(sort $(wildcard tests/integration/it_*.c))
BENCH_SRCS  := $(sort $(wildcard tests/bench/bench_*.c))
SIM_SRCS    := $(sort $(wildcard tests/sim/*.c))
FUZZ_SRCS   := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SHARED := $(sort $(filter-out $(FUZZ_SRCS),$(wildcard tests/fuzz/*.c)))
PRELOAD_SRCS := $(sort $(wildcard tests/preload/*.c))
REPORT_SRC  := $(wildcard tests/bench/report.c)
UNIT_SHARED  := $(sort $(filter-out $(UNIT_SRCS),$(wildcard tests/unit/*.c)))
IT_SHARED    := $(sort $(filter-out $(IT_SRCS),$(wildcard tests/integration/*.c)))
BENCH_SHARED := $(sort $(filter-out $(BENCH_SRCS) $(REPORT_SRC),$(wildcard tests/bench/*.c)))

PROG_SRCS := $(sort $(wildcard kvmm/main.c) $(DAEMON_SRCS) $(HOLD_SRCS) $(LIB_SRCS) \
	       $(BOX_SRCS) $(TOOL_SRCS) $(SWAPD_SRCS) $(RT_SRCS) $(KERN_SRCS))
TEST_SRCS := $(sort $(UNIT_SRCS) $(UNIT_SHARED) $(IT_SRCS) $(IT_SHARED) $(SIM_SRCS) \
	       $(BENCH_SRCS) $(BENCH_SHARED) $(REPORT_SRC) $(FUZZ_SRCS) $(FUZZ_SHARED) $(PRELOAD_SRCS))

# Files with a main() are the heads of programs and stay out of the archives.
MAINS := $(shell grep -lE '^int main[[:punct:]]' $(PROG_SRCS) /dev/null 2>/dev/null)
body = $(filter-out $(MAINS),$(1))

# ---------------------------------------------------------------------- flags

CFLAGS ?= -O2 -g
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
# Fences, which tsan does not know, stand between processes, where it sees nothing.
SAN_tsan  := -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
SAN := $(SAN_$(D))

# Arithmetic that is the same on every machine: no contraction to FMA.
KERN_CFLAGS := -O3 -ffp-contract=off
VARIANT_base   :=
VARIANT_avx2   := -mavx2 -mfma
VARIANT_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mprefer-vector-width=512
VARIANTS := base $(if $(filter x86_64,$(shell uname -m)),avx2 avx512)

# Libraries of each program; -pthread is always there.
LIBS_kvmm      := -lnuma -lseccomp -lcap-ng
LIBS_kvmm-hold := -luring -lseccomp -lcap-ng
LIBS_kvctl     :=
LIBS_swapd     := -luring -lseccomp -lcap-ng
LIBS_kvrt      := -ljansson -lpcre2-8 -lutf8proc -levent_core -lm
LIBS_report    := -ljansson
# Asked when the first test is linked: pkg-config itself may come by `make deps`.
LIBS_tests      = $(LIBS_kvmm) $(LIBS_kvmm-hold) $(LIBS_kvctl) $(LIBS_swapd) $(LIBS_kvrt) -ldl \
		  $(shell $(PKG_CONFIG) --libs check)

# -------------------------------------------------------------------- objects

V_SRCS := $(filter kernels/cpu/v_%,$(KERN_SRCS))
# $(call objs,sources): their objects; a v_ source has one object a variant
objs = $(patsubst %.c,$(B)/obj/%.o,$(filter-out $(V_SRCS),$(1))) \
       $(foreach v,$(VARIANTS),$(patsubst %.c,$(B)/obj/%.$(v).o,$(filter $(V_SRCS),$(1))))

ALL_OBJS := $(call objs,$(PROG_SRCS) $(TEST_SRCS))
CUDA_OBJS := $(patsubst %.cu,$(B)/obj/%.o,$(CUDA_SRCS))

# One stamp for the flags, one for the list of files: what they decide is made
# anew when they change.
CC_LINE := $(CC) $(KV_CPPFLAGS) $(KV_CFLAGS) $(CFLAGS) $(WARN) $(SAN)
$(B)/.flags: FLAGS_TEXT := $(CC_LINE) | $(KERN_CFLAGS) | $(value CORE_CFLAGS) | $(LDFLAGS) $(KV_LDFLAGS)
$(B)/.sources: FLAGS_TEXT := $(PROG_SRCS) $(TEST_SRCS)
$(B)/.flags $(B)/.sources: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $@ || \
		echo '$(subst ','\'',$(FLAGS_TEXT))' >$@

# The checker of C=1, chosen when it is used.
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

# More flags for the core, for `make coverage`.
CORE_CFLAGS :=
cc_flags = $(CC_LINE) $(if $(filter kernels/%,$<),$(KERN_CFLAGS)) \
	   $(if $(filter kvmm/core/%,$<),$(CORE_CFLAGS)) \
	   $(if $(filter tests/preload/%,$<),-fPIC -fno-sanitize=all) -MMD -MP
define cc_object
	$(call say,CC,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(cc_flags) $(1) -c -o $@ $<
	$(run_checker)
endef

# A static rule for each object of a variant goes before the pattern below.
$(foreach v,$(VARIANTS),$(eval \
$$(filter %.$(v).o,$$(ALL_OBJS)): $$(B)/obj/%.$(v).o: %.c $$(B)/.flags | toolchain ; \
	$$(call cc_object,-DKERN_VARIANT=$(v) $$(VARIANT_$(v)))))
$(B)/obj/%.o: %.c $(B)/.flags | toolchain
	$(call cc_object)

$(CUDA_OBJS): $(B)/obj/%.o: %.cu $(B)/.flags
	$(call say,NVCC,$(@:$(B)/obj/%=%))
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 -O3 -lineinfo -Iinclude -I. $(if $(filter-out 0,$(W)),-Werror all-warnings) \
		$(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
		-MMD -MP -MF $(@:.o=.d) -c -o $@ $<

-include $(wildcard $(patsubst %.o,%.d,$(ALL_OBJS) $(CUDA_OBJS)))

# ------------------------------------------------------------------- archives

# $(call archive,name,sources)
define archive
ifneq ($(strip $(call body,$(2))),)
ARCHIVES += $(B)/lib/lib$(1).a
$(B)/lib/lib$(1).a: $(call objs,$(call body,$(2)))
endif
endef
$(eval $(call archive,kvmmd,$(DAEMON_SRCS)))
$(eval $(call archive,hold,$(HOLD_SRCS)))
$(eval $(call archive,tools,$(TOOL_SRCS)))
$(eval $(call archive,swapd,$(SWAPD_SRCS)))
$(eval $(call archive,sandbox,$(BOX_SRCS)))
$(eval $(call archive,runtime,$(filter-out $(CLIENT_SRCS),$(RT_SRCS))))
$(eval $(call archive,kernels,$(KERN_SRCS)))
TEST_ARCHIVES := $(ARCHIVES)
# What other programs link to attach: the client and what it stands on.
$(eval $(call archive,kvmm,$(CLIENT_SRCS) $(LIB_SRCS)))
TEST_ARCHIVES := $(ARCHIVES)
LIBKVMM := $(if $(CLIENT_SRCS),$(B)/lib/libkvmm.a)

$(ARCHIVES): $(B)/.sources
	$(call say,AR,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

# ------------------------------------------------------------------- programs

# $(call program,name,source of main,sources)
define program
ifneq ($(strip $(2)),)
PROGS += $(B)/$(1)
$(B)/$(1): $(call objs,$(2) $(call body,$(3)))
endif
endef
$(eval $(call program,kvmm,$(wildcard kvmm/main.c),$(DAEMON_SRCS) $(LIB_SRCS)))
$(eval $(call program,kvmm-hold,$(filter $(HOLD_SRCS),$(MAINS)),$(HOLD_SRCS) $(LIB_SRCS)))
$(eval $(call program,kvctl,$(wildcard kvmm/tools/kvctl.c),$(TOOL_SRCS) $(LIB_SRCS)))
$(eval $(call program,swapd,$(wildcard swapd/main.c),$(SWAPD_SRCS) $(LIB_SRCS)))
$(eval $(call program,kvrt,$(wildcard runtime/kvrt.c),$(RT_SRCS) $(KERN_SRCS) $(LIB_SRCS)))

# $(call link,libraries): objects first, then the archives as one group
define link
	$(call say,LD,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	$(Q)$(CC) $(SAN) $(CFLAGS) $(KV_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) \
		$(if $(filter %.a,$^),-Wl$(comma)--start-group $(filter %.a,$^) -Wl$(comma)--end-group) $(1)
endef

# From its archive: hold takes the part without the filter, and no libseccomp.
$(filter $(B)/kvmm $(B)/kvmm-hold $(B)/swapd,$(PROGS)): $(filter %/libsandbox.a,$(ARCHIVES))

$(PROGS): $(B)/.sources
	$(call link,$(LIBS_$(@F)))

UNIT_PROGS  := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRCS))
IT_PROGS    := $(patsubst tests/integration/%.c,$(B)/tests/%,$(IT_SRCS))
BENCH_PROGS := $(patsubst tests/bench/%.c,$(B)/tests/%,$(BENCH_SRCS))
SIM_PROG    := $(if $(SIM_SRCS),$(B)/tests/sim)
REPORT_PROG := $(if $(REPORT_SRC),$(B)/tests/bench-report)
PRELOADS    := $(patsubst tests/preload/%.c,$(B)/tests/%.so,$(PRELOAD_SRCS))
FUZZ_PROGS  := $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(FUZZ_SRCS))
TEST_PROGS  := $(UNIT_PROGS) $(IT_PROGS) $(BENCH_PROGS) $(SIM_PROG) $(REPORT_PROG) $(FUZZ_PROGS) \
	       $(PRELOADS)

$(UNIT_PROGS): $(B)/tests/%: $(B)/obj/tests/unit/%.o $(call objs,$(UNIT_SHARED))
$(B)/tests/check_beams: $(call objs,tests/bench/beams.c)
$(IT_PROGS): $(B)/tests/%: $(B)/obj/tests/integration/%.o $(call objs,$(IT_SHARED))
$(BENCH_PROGS): $(B)/tests/%: $(B)/obj/tests/bench/%.o $(call objs,$(BENCH_SHARED))
$(SIM_PROG): $(call objs,$(SIM_SRCS))
$(FUZZ_PROGS): $(B)/tests/%: $(B)/obj/tests/fuzz/%.o
# Some targets are of the runtime and have a main() of their own; the others are of the
# daemons, some of whose calls tests/fuzz answers: an archive, since no target
# needs all of it, and with hold what the daemon names likewise must stay out.
FUZZ_WRAP := mm_call segment_create segment_destroy kv_log kv_log_spend unlink fork exit
FUZZ_RT := $(filter %/fuzz_template %/fuzz_config %/fuzz_safetensors %/fuzz_tokenizer,$(FUZZ_PROGS))
FUZZ_DAEMONS := $(filter-out $(FUZZ_RT),$(FUZZ_PROGS))
$(B)/lib/libfuzz.a: $(call objs,$(FUZZ_SHARED)) $(B)/.sources
	$(call say,AR,$(@:$(B)/%=%))
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)
$(FUZZ_DAEMONS): $(B)/lib/libfuzz.a $(filter-out %/libruntime.a %/libkernels.a,$(TEST_ARCHIVES)) \
		$(B)/.sources
	$(call link,$(LIBS_tests) $(FUZZ_WRAP:%=-Wl$(comma)--wrap=%))

$(UNIT_PROGS) $(IT_PROGS) $(BENCH_PROGS) $(SIM_PROG) $(FUZZ_RT): $(TEST_ARCHIVES) $(B)/.sources
	$(call link,$(LIBS_tests))
$(REPORT_PROG): $(call objs,$(REPORT_SRC)) $(B)/.sources
	$(call link,$(LIBS_report))
$(PRELOADS): $(B)/tests/%.so: $(B)/obj/tests/preload/%.o $(B)/.sources
	$(call link,-shared -ldl)
$(PRELOADS): SAN :=

# -------------------------------------------------------------------- targets

.DEFAULT_GOAL := all
.PHONY: all tests cuda toolchain deps run check check-full soak check-style sim coverage bench fuzz \
	install clean help bench-progs core-tests FORCE
FORCE:

all: $(PROGS) $(LIBKVMM)
	@:

tests: $(TEST_PROGS)
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
else ifeq ($(NVCC),)
cuda:
	@echo '  SKIP    cuda: nvcc is not installed (looked in PATH and /usr/local/cuda/bin)'
else
cuda: $(CUDA_OBJS)
	@:
endif

deps:
	@.ci/deps

# The second make sees what deps installed, and uses all cores unless told how many.
SUBMAKE = --no-print-directory $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(NPROC))
TEST_ENV = KVMM_TOP='$(CURDIR)' KVMM_BUILD='$(abspath $(B))' KVMM_SANITIZER='$(D)' \
	   CC='$(CC)' SEEDS='$(SEEDS)'

# exec: the shell would die of the Ctrl-C that ends the demo well, and make complain.
run: deps
	$(Q)$(MAKE) $(SUBMAKE) all
	$(Q)$(TEST_ENV) exec kvmm/dist/demo $(B)

check: KVMM_LEVEL := check
check-full: KVMM_LEVEL := full
soak: KVMM_LEVEL := soak
check check-full soak: deps
	@mkdir -p $(B) && date +%s >$(B)/.check-start
	$(Q)$(MAKE) $(SUBMAKE) all tests $(if $(D),,cuda) || \
		{ printf '\nthe build failed\n0 passed, 1 failed\n'; exit 1; }
	$(Q)$(TEST_ENV) KVMM_TEST_LEVEL=$(KVMM_LEVEL) T='$(T)' tests/run $(SUITES)

sim: deps
	$(Q)$(MAKE) $(SUBMAKE) $(B)/tests/sim
	$(Q)$(TEST_ENV) $(B)/tests/sim $(if $(SEEDS),--seeds $(SEEDS))

# Not optimized: a branch of the source is one of the object.  Only the walkers,
# which run after every event, are a little.
COV_CFLAGS = $(if $(filter kvmm/core/check%,$<),-O1,-O0) --coverage
COV := $(abspath $(O)/cov)
coverage: deps
	$(Q)$(MAKE) $(SUBMAKE) O='$(COV)' D= CC=gcc \
		CORE_CFLAGS='$$(COV_CFLAGS)' LDFLAGS='--coverage $(LDFLAGS)' core-tests
	$(Q)$(TEST_ENV) KVMM_BUILD='$(COV)' tests/coverage/run $(if $(SEEDS),--seeds $(SEEDS))

bench: deps
	$(Q)$(MAKE) $(SUBMAKE) all bench-progs
	$(Q)$(TEST_ENV) T='$(T)' tests/bench/run

# A fuzzer brings its own compiler: its objects lie in build/fuzz-ENGINE.
SECS ?= 60
ENGINE ?= lib
fuzz:
	$(Q)tests/fuzz/run '$(T)' '$(SECS)' '$(ENGINE)'

check-style:
	$(Q).ci/check-style

CLIENT_HEADERS := $(wildcard include/libkvmm.h include/uapi/*.h include/kvmm/types.h)
VERSION = $(shell sed -n 's/^.define KVMM_VERSION[^"]*"\(.*\)"/\1/p' include/kvmm/version.h)

install: all
	$(call say,INSTALL,$(DESTDIR)$(prefix))
	$(Q)install -d '$(DESTDIR)$(bindir)' '$(DESTDIR)$(sbindir)' '$(DESTDIR)$(docdir)'
	$(Q)set -e; for p in $(filter $(B)/kvctl $(B)/kvrt,$(PROGS)); do \
		install -m 755 $$p '$(DESTDIR)$(bindir)'; done
	$(Q)set -e; for p in $(filter $(B)/kvmm $(B)/kvmm-hold $(B)/swapd,$(PROGS)); do \
		install -m 755 $$p '$(DESTDIR)$(sbindir)'; done
	$(Q)set -e; for a in $(LIBKVMM); do \
		install -D -m 644 $$a '$(DESTDIR)$(libdir)/'$${a##*/}; done
	$(Q)set -e; cd include && for h in $(CLIENT_HEADERS:include/%=%); do \
		install -D -m 644 $$h '$(DESTDIR)$(includedir)/libkvmm/'$$h; done
	$(Q)install -d '$(DESTDIR)$(libdir)/pkgconfig'
	$(Q)printf '%s\n' 'Name: libkvmm' 'Description: client library of kvmm' \
		'Version: $(VERSION)' 'Cflags: -I$(includedir)/libkvmm' \
		'Libs: -L$(libdir) -lkvmm -pthread' >'$(DESTDIR)$(libdir)/pkgconfig/libkvmm.pc'
	$(Q)set -e; for f in $(wildcard README.md LICENSE); do \
		install -m 644 $$f '$(DESTDIR)$(docdir)'; done

# Only what was made here, so that O=/tmp costs nobody a /tmp.
clean:
	$(call say,CLEAN,$(O))
	$(Q)for b in $(if $(D),,$(addprefix $(O)/,asan tsan ubsan cov)) $(B); do \
		rm -rf $$b/obj $$b/lib $$b/tests $$b/logs $$b/bench.json $$b/coverage.txt $$b/.flags $$b/.sources \
			$$b/.check-start $(addprefix $$b/,kvmm kvmm-hold kvctl kvrt swapd); \
		if [ -d $$b ]; then rmdir --ignore-fail-on-non-empty $$b; fi; done

help:
	@sed -n '/^# Targets/,/^$$/{s/^# \{0,1\}//;p}' Makefile
