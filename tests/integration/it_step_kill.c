// SPDX-License-Identifier: Apache-2.0
/*
 * it_step_kill.c - clients killed at any instruction
 *
 * A client attaches, uses every verb of the ABI and detaches.  One run of it is
 * single-stepped from beginning to end.  Other runs are ended by signal 9 at
 * chosen instructions: around every store to memory that the daemon sees,
 * before, after and inside system calls, and at others all over each phase.
 * After each death the daemon must notice it soon, nothing of the dead client
 * may be open, pinned or in quarantine, and the walkers must find no fault.  At
 * the end nothing is left: descriptors, memfds, processes, mappings, memory.
 *
 *	calls		at every entry to and exit from a system call of
 *			attach and detach; above check level of all phases
 *	points		at instructions, without other clients
 *	witness		the same beside an honest client of the same domain,
 *			which searches every byte of its memory
 *	stopped		not killed but stopped: the daemon's deadlines act
 *
 * budget: 30 s, full 120 s
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uapi/kvmm.h>

#include "tests/integration/step_choice.h"
#include "tests/integration/step_ledger.h"
#include "tests/integration/step_trace.h"

#ifdef __x86_64__

#define SALTS		160u	/* more than fit in the pool */
#define FEW_SALTS	8u	/* so that a witness finds blocks of victims */
#define DROP_EVERY	64u

/* Shared by the processes of all tests. */
static struct tally {
	u32	points;
	u32	phase[STEP_NR];
	u32	kind[STEP_KINDS];
	u32	inside;		/* calls during which the victim was killed */
	u32	late;		/* victims killed behind their point */
	u32	insns;		/* instructions of the scene */
	u32	distinct;	/* of them, different points */
	u32	walks;
	u32	stopped;
	u32	witnessed;
} *tally;

static struct rig rig;
static struct ledger ledger;
static struct step_trace trace;
static struct step_page *page;
static char socket_path[RIG_PATH + 32];

static void setup_with(const char *pool, const char *deadline)
{
	rig_start(&rig, "--pool-size", pool, "--extent-size", "256K",
		  "--host-size", "2M", "--step-deadline-ms", deadline,
		  "--swappiness", "200", "--log-level", "warn", NULL);
	snprintf(socket_path, sizeof(socket_path), "%s/attach.sock", rig.dir);
	page = step_page_make();
}

/* Run the scene without a tracer. */
static void scene_whole(u32 salt)
{
	static struct step_page *p;
	pid_t pid;

	if (!p)
		p = step_page_make();
	memset(p, 0, sizeof(*p));
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		step_scene(p, socket_path, salt);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	if (p->done_mask != (1u << STEP_NR) - 1)
		ck_abort_msg("the scene ended in %s: %s",
			     step_phase_name[p->phase], p->why);
}

/* The scene must have every verb of the ABI and every advice. */
static void scene_is_complete(void)
{
	u32 op;

	for (op = 0; op < KVMM_NR_OPS; op++)
		ck_assert_msg(trace.ops >> op & 1, "verb %u is not in the scene",
			      op);
	for (op = KVMM_ADV_COLD; op <= KVMM_ADV_RETAIN; op++)
		ck_assert_msg(page->advice >> op & 1,
			      "advice %u is not in the scene", op);
}

static void setup(void)
{
	struct step_victim v;
	u32 i;

	setup_with("2M", "30000");
	/* Make every extent first. */
	for (i = 0; i < SALTS; i++)
		scene_whole(i);
	ledger_open(&ledger, &rig);
	step_start(&v, page, socket_path, 0);
	step_learn(&trace, &v);
	if (page->done_mask != (1u << STEP_NR) - 1)
		ck_abort_msg("the stepped scene ended in %s: %s",
			     step_phase_name[page->phase], page->why);
	scene_is_complete();
	ledger_settle(&ledger, "stepped through");
	tally->insns = trace.nr;
}

static void teardown(void)
{
	step_forget(&trace);
	rig_stop(&rig);
}

/* ---- one death ---- */

static const char *where(u32 phase, u32 kind, u32 i)
{
	static const char *const kinds[STEP_KINDS] = {
		[STEP_OTHER] = "an instruction",
		[STEP_STORE] = "a store", [STEP_CALL] = "a system call",
	};
	static char text[128];

	snprintf(text, sizeof(text), "killed in %s, at %s, point %u, pc %llx",
		 step_phase_name[phase], kinds[kind], i,
		 (unsigned long long)(i < trace.nr ? trace.pt[i].pc : 0));
	return text;
}

static void count(u32 phase, u32 kind)
{
	tally->points++;
	tally->phase[phase]++;
	tally->kind[kind]++;
	if (tally->points % DROP_EVERY == 0)
		ledger_drop(&ledger);
}

/* @inside: in the middle of the next system call. */
static void kill_at(u32 i, u32 salt, bool inside)
{
	const struct step_point *pt = &trace.pt[i];
	struct step_victim v;
	enum step_where at;

	step_start(&v, page, socket_path, salt);
	at = step_to_point(&v, &trace, i);
	inside = inside && at == STEP_THERE;
	if (inside)
		step_release(&v);
	step_kill(&v);
	tally->late += at == STEP_GONE;
	tally->inside += inside;
	tally->walks++;
	ledger_settle(&ledger, where(pt->phase, pt->kind, i));
	if (at != STEP_GONE)
		count(pt->phase, at == STEP_THERE ? pt->kind : STEP_OTHER);
}

/* ---- tests ---- */

/* All points of a phase with few points may have been late. */
static void leave_no_phase_out(struct campaign *c)
{
	u32 phase, tries;

	for (phase = STEP_attach; phase <= STEP_detach; phase++)
		for (tries = 0; !tally->phase[phase]; tries++) {
			ck_assert_msg(tries < 100, "%s cannot be stopped in",
				      step_phase_name[phase]);
			kill_at(campaign_take_of(c, phase),
				random_below(SALTS), false);
		}
}

static void campaign_run(u32 nr, u32 salts)
{
	struct campaign c;
	u32 turn, at, done = tally->points + nr;

	campaign_make(&c, &trace, nr);
	for (turn = 0; tally->points < done; turn++) {
		at = campaign_take(&c, turn);
		kill_at(at, random_below(salts),
			trace.pt[at].kind == STEP_CALL && random_below(2));
		ck_assert_msg(turn < 2 * nr + 20, "few points are ever reached");
	}
	leave_no_phase_out(&c);
	tally->distinct = max(tally->distinct, campaign_end(&c));
}

START_TEST(test_points)
{
	campaign_run(by_level(28, 2500, 45000) / time_scale(), SALTS);
}
END_TEST

/*
 * Stop at the n-th entry to or exit from a system call, later kill.
 * Return: false: the phase has fewer.
 */
static bool kill_at_call(u32 phase, u32 n)
{
	struct step_victim v;
	bool there;
	u32 i;

	step_start(&v, page, socket_path, random_below(SALTS));
	there = step_to_phase(&v, phase);
	for (i = 0; there && i < n; i++)
		there = step_to_call(&v);
	/* Not in the next phase. */
	there = there && READ_ONCE(page->phase) <= phase;
	/* Other clients are served while it is stopped. */
	scene_whole(random_below(SALTS));
	tally->stopped += there;
	step_kill(&v);
	tally->walks++;
	ledger_settle(&ledger, where(phase, STEP_CALL, trace.nr));
	if (there)
		count(phase, STEP_CALL);
	return there;
}

START_TEST(test_calls)
{
	u32 phase, n;

	for (phase = STEP_attach; phase < STEP_over; phase++) {
		if (phase != STEP_attach && phase != STEP_detach &&
		    !by_level(0, 1, 1))
			continue;
		for (n = 1; kill_at_call(phase, n); n++)
			;
		if (phase == STEP_attach || phase == STEP_detach)
			ck_assert_uint_gt(n, 10);
	}
}
END_TEST

static pid_t witness_start(struct step_page *p)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(!step_honest(p, socket_path, FEW_SALTS));
	return pid;
}

START_TEST(test_witness)
{
	struct step_page *p = step_page_make();
	pid_t pid = witness_start(p);
	int status;

	ledger_admit(&ledger, 1);
	ledger.other_says = p->why;
	campaign_run(by_level(14, 500, 6000) / time_scale(), FEW_SALTS);
	p->quit = 1;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (status)
		ck_abort_msg("the witness: %s", p->why);
	ck_assert_uint_gt(p->rounds, 2);
	ck_assert_uint_gt(p->hits, 0);
	tally->witnessed += p->rounds;
	ledger_admit(&ledger, 0);
}
END_TEST

/* The last test with this daemon. */
START_TEST(test_nothing_left)
{
	ledger_close(&ledger);
}
END_TEST

/* ---- stopped, not killed ---- */

#define IN_STEP		2u	/* as many fill the pool of this test */

/* A client holds half of the pool in a step that it never ends. */
static void stop_in_step(struct step_victim *v, u32 salt)
{
	step_start(v, step_page_make(), socket_path, salt);
	ck_assert(step_to_phase(v, STEP_kv));
}

/* One client has connected, another one does not read the answer. */
static void stop_in_attach(struct step_victim *mute, struct step_victim *deaf)
{
	step_start(mute, step_page_make(), socket_path, 1);
	ck_assert(step_past_call(mute, SYS_connect));
	step_start(deaf, step_page_make(), socket_path, 1);
	ck_assert(step_past_call(deaf, SYS_sendto));
}

/* The daemon has closed the connection of the client that sent no request. */
static void expect_refused(struct step_victim *v)
{
	step_release(v);
	ck_assert_int_eq(step_wait(v), 0);
	ck_assert_uint_eq(v->p->done_mask, 1u << STEP_start);
	ck_assert_msg(strstr(v->p->why, "hung up"), "it said: %s", v->p->why);
}

START_TEST(test_stopped)
{
	struct step_victim in_step[IN_STEP], mute, deaf;
	struct step_page *p;
	struct ledger l;
	int status, i;
	s64 killed;
	u64 until;
	pid_t pid;

	setup_with("256K", "500");
	scene_whole(0);
	ledger_open(&l, &rig);
	stop_in_attach(&mute, &deaf);
	for (i = 0; i < (int)IN_STEP; i++)
		stop_in_step(&in_step[i], 10 + (u32)i);
	p = step_page_make();
	pid = witness_start(p);
	/* They have all of the pool, so the witness waits until one is killed. */
	while (READ_ONCE(p->rounds) < 3 && !waitpid(pid, &status, WNOHANG))
		nap_ms(1);
	killed = ledger_value(&l, "vmstat", "client_kill");
	ck_assert_int_ge(killed, 1);
	p->quit = 1;
	ck_assert_msg(waitpid(pid, &status, 0) == pid && !status, "%s", p->why);
	/* A kill is counted before its process is gone. */
	until = now_ms() + 10000u * time_scale();
	for (i = 0; killed && now_ms() < until; i++) {
		killed -= step_was_killed(&in_step[i % IN_STEP]);
		nap_ms(1);
	}
	ck_assert_int_eq(killed, 0);
	for (i = 0; i < (int)IN_STEP; i++)
		step_kill(&in_step[i]);
	step_kill(&deaf);
	/* This waits for the client without a request, too: its time ends. */
	ledger_settle(&l, "stopped after connect()");
	expect_refused(&mute);
	tally->stopped += IN_STEP + 2;
	ledger_close(&l);
	rig_stop(&rig);
}
END_TEST

/* ---- all of it ---- */

/* Was there a death in each phase? */
static bool tally_is_complete(void)
{
	u32 i;

	for (i = STEP_attach; i <= STEP_detach; i++) {
		if (tally->phase[i])
			continue;
		printf("nobody was killed in %s\n", step_phase_name[i]);
		return false;
	}
	return true;
}

/* In two lines: the runner cuts longer ones. */
static void tally_print(void)
{
	const u32 *at = tally->phase;
	u32 i;

	printf("total: %u clients killed at %u of %u instructions: in attach %u, verbs %u, detach %u; at stores to shared memory %u, system calls %u (%u inside), others %u; %u stopped; %u late; witness %u rounds; walkers %u times, leaks 0\n",
	       tally->points, tally->distinct, tally->insns,
	       at[STEP_start] + at[STEP_attach], tally->points -
	       at[STEP_start] - at[STEP_attach] - at[STEP_detach] -
	       at[STEP_over], at[STEP_detach] + at[STEP_over],
	       tally->kind[STEP_STORE], tally->kind[STEP_CALL], tally->inside,
	       tally->kind[STEP_OTHER], tally->stopped, tally->late,
	       tally->witnessed, tally->walks);
	printf("total: of them");
	for (i = STEP_nop; i < STEP_detach; i++)
		printf("%s %s %u", i > STEP_nop ? "," : "", step_phase_name[i],
		       at[i]);
	putchar('\n');
}

int main(int argc, char **argv)
{
	const char *why = step_forbidden();
	Suite *s = suite_create("step-kill");
	TCase *tc = tcase_create("kill");
	SRunner *sr;
	int failed;

	if (why) {
		puts(why);
		return 77;
	}
	/* Do without lazy binding: the linker's instructions need no points. */
	if (!getenv("LD_BIND_NOW")) {
		setenv("LD_BIND_NOW", "1", 1);
		execv(argv[0], argv);
	}
	(void)random_below(2);
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tally == MAP_FAILED)
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 3600);
	tcase_add_unchecked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_calls);
	tcase_add_test(tc, test_points);
	tcase_add_test(tc, test_witness);
	tcase_add_test(tc, test_nothing_left);
	tcase_add_test(tc, test_stopped);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	failed = failed || !tally_is_complete();
	if (!failed)
		tally_print();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#else

int main(void)
{
	puts("single-stepping is written for x86-64 alone");
	return 77;
}

#endif /* __x86_64__ */
