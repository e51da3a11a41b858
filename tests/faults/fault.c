// SPDX-License-Identifier: Apache-2.0
/*
 * fault.c - named fault points
 *
 * Each point has the number of the pass that fails (0: never, EVERY: all) and a
 * count of passes.  Both are set before threads exist.  Afterwards only the counts
 * change, by atomic addition, so that a point passed by several threads fails
 * exactly once.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/opts.h>

#define EVERY	UINT64_MAX

static const struct {
	const char *name;
	const char *text;
} fault_list[NR_KV_FAULTS] = {
#define x(_name, _text) [KV_FAULT_##_name] = { #_name, _text },
	KV_FAULTS(x)
#undef x
#define x(_name, _text)							\
	[KV_FAULT_crash_first + CORE_CRASH_##_name] = {			\
		"crash_" #_name, "the daemon dies in the core: " _text },
	CORE_CRASH_POINTS(x)
#undef x
};

bool kv_fault_armed;
static u64 fault_when[NR_KV_FAULTS];
static u64 fault_passed[NR_KV_FAULTS];

const char *kv_fault_name(u32 point)
{
	return point < NR_KV_FAULTS ? fault_list[point].name : NULL;
}

const char *kv_fault_text(u32 point)
{
	return point < NR_KV_FAULTS ? fault_list[point].text : NULL;
}

bool kv_fault_slow(enum kv_fault point)
{
	u64 nth;

	if (!fault_when[point])
		return false;
	nth = __atomic_add_fetch(&fault_passed[point], 1, __ATOMIC_RELAXED);
	return fault_when[point] == EVERY || fault_when[point] == nth;
}

void kv_fault_die(enum kv_fault point)
{
	if (!kv_fault(point))
		return;
	kill(getpid(), SIGKILL);
	/* The signal may stop another thread first. */
	for (;;)
		pause();
}

void kv_fault_crash_none(void)
{
	u32 i;

	for (i = KV_FAULT_crash_first; i < NR_KV_FAULTS; i++)
		fault_when[i] = 0;
}

static int fault_find(const char *name, size_t len)
{
	int i;

	for (i = 0; i < NR_KV_FAULTS; i++) {
		if (strlen(fault_list[i].name) == len &&
		    !memcmp(fault_list[i].name, name, len))
			return i;
	}
	return -1;
}

/* Arm one "name" or "name:k" of @len bytes. */
static int fault_arm(const char *item, size_t len, char *text, size_t text_len)
{
	const char *colon = memchr(item, ':', len);
	size_t name_len = colon ? (size_t)(colon - item) : len;
	int i = fault_find(item, name_len);
	char num[24] = "";
	u64 k = EVERY;

	if (i < 0) {
		snprintf(text, text_len,
			 "KVMM_FAULT: '%.*s' is no fault point: see include/kvmm/fault.h",
			 (int)name_len, item);
		return -EINVAL;
	}
	if (colon) {
		size_t n = len - name_len - 1;

		if (n < sizeof(num))
			memcpy(num, colon + 1, n);
		if (n >= sizeof(num) || kv_parse_uint(num, &k) || !k) {
			snprintf(text, text_len,
				 "KVMM_FAULT: '%.*s': write name or name:k, k from 1",
				 (int)len, item);
			return -EINVAL;
		}
	}
	fault_when[i] = k;
	kv_fault_armed = true;
	return 0;
}

int kv_fault_init(const char *spec, char *text, size_t len)
{
	int err;

	kv_fault_armed = false;
	memset(fault_when, 0, sizeof(fault_when));
	memset(fault_passed, 0, sizeof(fault_passed));
	while (spec && *spec) {
		size_t n = strcspn(spec, ",");

		err = fault_arm(spec, n, text, len);
		if (err) {
			kv_fault_armed = false;
			return err;
		}
		spec += n;
		spec += *spec == ',';
	}
	return 0;
}

int kv_fault_env(char *text, size_t len)
{
	return kv_fault_init(getenv("KVMM_FAULT"), text, len);
}
