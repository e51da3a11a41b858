// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_sqe.c - requests of several clients to the real core
 *
 * An input is a list of events, each begun by a byte.  Most are requests of one
 * of the clients, through core_req_check() and core_req_execute().  The others
 * are events around them: memory is made or not, copies and transfers end or fail
 * in any order, time passes, clients die, an operator changes a setting.  The
 * walkers run after every few events and at the end, when all clients are gone
 * and all memory must have come back.
 */
#include "tests/fuzz/shell.h"

#define EVENTS		160u	/* of an input */
#define CHECK_EVERY	32u

static struct shell_client *some_client(struct fuzz *f)
{
	return &shell.cl[fuzz_u8(f) % SHELL_CLIENTS];
}

static void ev_request(struct fuzz *f)
{
	struct shell_client *cl = some_client(f);
	struct kvmm_sqe sqe;

	if (cl->state != SHELL_ALIVE)
		return;
	fuzz_request(f, cl->seqs, SHELL_SEQS, cl->handles, cl->nr_handles,
		     &cl->step, &sqe, shell.args);
	/* As serve.c, which bounds the arguments itself. */
	sqe.arg_len = min(sqe.arg_len, SHELL_ARGS);
	sqe.number = fuzz_u8(f) == 255 ? fuzz_u64(f) : cl->number + 1;
	if (sqe.number > cl->number && sqe.number < UINT64_MAX - 1)
		cl->number = sqe.number;
	(void)shell_request(cl, &sqe, shell.args);
}

static void ev_attach(struct fuzz *f)
{
	struct kvmm_attach_req req;
	u8 how = fuzz_u8(f);

	shell_attach_req(&req, how >> 2 & 1);
	if (how & 8)
		req.limits[0].max = (u64)fuzz_number(f) << 6;
	if (how & 16)
		req.limits[0].min = (u64)fuzz_number(f) << 6;
	if (how & 32)
		req.max_seqs = fuzz_u8(f);
	if (how & 64)
		req.max_steps = fuzz_u8(f);
	if (how & 128)
		fuzz_scar(f, &req, sizeof(req));
	(void)shell_attach(how & 3, &req);
}

static void ev_time(struct fuzz *f)
{
	static const u32 ms[] = { 1, 10, 60, 110, 250, 600, 2500, 60000 };

	shell.now += ms[fuzz_u8(f) % ARRAY_SIZE(ms)] * SHELL_MS;
	core_tick(shell.core, shell.now);
}

static int some_failure(struct fuzz *f, int other)
{
	u8 b = fuzz_u8(f);

	return b < 208 ? 0 : b < 232 ? -EIO : other;
}

static void ev_answer(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	switch (b & 3) {
	case 0:
		(void)shell_created(b >> 2, some_failure(f, -ENOMEM));
		break;
	case 1:
		(void)shell_copied(b >> 2, some_failure(f, -EFAULT));
		break;
	case 2:
		(void)shell_io_done(b >> 2, some_failure(f, -EBADMSG));
		break;
	default:
		(void)shell_ack(&shell.cl[(b >> 2) % SHELL_CLIENTS]);
	}
}

static void ev_death(struct fuzz *f)
{
	struct shell_client *cl = some_client(f);
	u8 b = fuzz_u8(f);
	u32 t = b >> 4 & 3;

	if (b & 1)
		shell_dead(cl);
	if (b & 2)
		shell_quiet(cl);
	if (b & 4 && shell.ghosts[t]) {
		shell.ghosts[t]--;
		core_ghost_gone(shell.core, shell.now, t);
	}
}

static void ev_operator(struct fuzz *f)
{
	u8 b = fuzz_u8(f);
	u64 value = (u64)fuzz_number(f) << (b & 8 ? 10 : 0);
	u32 area;

	switch (b & 7) {
	case 0:
		(void)!core_area_add(shell.core, shell.now, value,
				     fuzz_u8(f), &area);
		break;
	case 1:
		(void)!core_area_del(shell.core, shell.now,
				     b >> 4 & (CORE_MAX_AREAS - 1));
		break;
	case 2:
		if (b & 128)
			core_area_lose(shell.core, shell.now,
				       b >> 4 & (CORE_MAX_AREAS - 1));
		break;
	case 3:
		(void)!core_pool_resize(shell.core, shell.now, 0,
					b & 16 ? shell.cfg.pool_bytes : value);
		break;
	case 4:
		(void)!core_domain_set(shell.core, shell.now, b >> 4 & 3,
				       fuzz_u8(f) % (CORE_NR_LIMITS + 1),
				       value);
		break;
	case 5:
		(void)!core_tune(shell.core, shell.now,
				 (b >> 4) % (CORE_NR_TUNABLES + 1), value);
		break;
	case 6:
		(void)core_drop_caches(shell.core, shell.now, b >> 4 & 3,
				       (int)fuzz_u8(f));
		break;
	default:
		(void)core_poll(shell.core, shell.now);
	}
}

static void play(struct fuzz *f)
{
	u8 b = fuzz_u8(f);

	if (b < 150)
		ev_request(f);
	else if (b < 170)
		ev_answer(f);
	else if (b < 205)
		shell_settle();
	else if (b < 220)
		ev_time(f);
	else if (b < 235)
		ev_operator(f);
	else if (b < 247)
		ev_attach(f);
	else
		ev_death(f);
}

/* Carry out the core's orders to kill, sooner or later. */
static void bury(void)
{
	u32 i;

	for (i = 0; i < SHELL_CLIENTS; i++)
		if (shell.cl[i].killed) {
			shell_dead(&shell.cl[i]);
			shell_quiet(&shell.cl[i]);
		}
}

/* Two clients that share a domain, one of another tenant; the first area. */
static void setup(void)
{
	struct kvmm_attach_req req;
	u32 n, area;

	for (n = 0; n < SHELL_CLIENTS; n++) {
		shell_attach_req(&req, n / 2);
		FUZZ_LAW(shell_attach(n / 2, &req), "client %u", n);
	}
	(void)!core_area_add(shell.core, shell.now, shell.cfg.area_bytes, 1,
			     &area);
	shell_settle();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)FUZZ_MAX) };
	u32 n;

	shell_begin(setup);
	for (n = 1; f.left && n <= EVENTS; n++) {
		play(&f);
		if (n % CHECK_EVERY)
			continue;
		bury();
		shell_check();
	}
	/* Check before the end, or after it: a check costs as much as all else. */
	if (size % 4)
		shell_check();
	shell_end();
	if (size % 4 == 0)
		shell_check();
	return 0;
}
