/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvmm_fixture.h - one client on one daemon in a thread
 *
 * For suites about a live attachment: setup() attaches, teardown() detaches and
 * fails if the daemon saw a wrong request.
 */
#ifndef LIBKVMM_FIXTURE_H
#define LIBKVMM_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <libkvmm.h>

#include "tests/unit/fake_daemon.h"

static struct fake f;
static struct kvmm *k;
static char text[256];
static u8 identity[KVMM_IDENTITY_LEN];
static const u32 spins[] __maybe_unused = { 0, 200, KVMM_SPIN_FOREVER };

static void attach_with(u32 spin, u32 nr_groups)
{
	struct kvmm_params p = {
		.socket = f.addr.sun_path,
		.domain = "test",
		.identity = identity,
		.block_tokens = 16,
		.nr_groups = nr_groups,
		.group[0] = { .layers = 4, .kv_heads = 2, .k_bytes = 32,
			   .v_bytes = 32 },
		.group[1] = { .layers = 2, .kv_heads = 2, .k_bytes = 32,
			   .v_bytes = 32, .window = 64, .block_tokens = 8 },
		.max_bytes = KVMM_LIMIT_MAX,
		.spin = spin,
		.attach_timeout_ms = 2000,
	};

	ck_assert_msg(!kvmm_attach(&p, &k, text), "%s", text);
	fake_wait_serving(&f);
}

static void attach_spinning(u32 spin)
{
	attach_with(spin, 1);
}

static void setup(void)
{
	fake_init(&f);
	fake_start(&f);
	attach_spinning(200);
}

static void teardown(void)
{
	/* Order the test's writes to the segments before their unmapping. */
	fake_acks(&f);
	kvmm_detach(k);
	fake_stop(&f);
	ck_assert_msg(!fake_broken(&f), "%s", fake_broken(&f));
}

/* The attachment is over, and its error text contains @says. */
static void __maybe_unused check_ended(const char *says)
{
	ck_assert(!kvmm_alive(k));
	ck_assert_msg(strstr(kvmm_strerror_attach(k), says),
		      "said '%s', not '%s'", kvmm_strerror_attach(k), says);
}

static TCase *new_case(const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 10);
	return tc;
}

/* Run @s.  Return: the result of main(). */
static int run_suite(Suite *s)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* LIBKVMM_FIXTURE_H */
