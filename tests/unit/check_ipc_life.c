// SPDX-License-Identifier: Apache-2.0
/*
 * Lives of the daemon and its clients: death in a step, hanging up, stopping,
 * more extents than a message carries, failures at named points.
 *
 * budget: 40 s, full 60 s
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/tmp.h"
#include "tests/unit/ipc_daemon.h"

static struct ipcd d;

static void setup_dir(void)
{
	memset(&d, 0, sizeof(d));
}

static void start(const char *args, const char *env)
{
	char line[256];

	snprintf(line, sizeof(line), "--extent-size 64K %s", args);
	ipcd_start(&d, "kvmm", line, env);
}

/* ---- sequences by hand ---- */

static const void *result(const struct rawc *r)
{
	return r->d + r->rep.result_off +
	       rawc_cqe(r, (u32)r->number - 1)->result_off;
}

/* Send one request and consume its answer. */
static int ask(struct rawc *r, u16 op, u32 nr, u64 step, const void *args,
	       u32 bytes)
{
	int status;

	rawc_put(r, op, nr, args, bytes)->step = step;
	rawc_publish(r);
	ck_assert(rawc_wait(r, (u32)r->number));
	status = rawc_cqe(r, (u32)r->number - 1)->status;
	store_release(&r->ctl->cq_head, (u32)r->number);
	return status;
}

/* Open a sequence of @blocks blocks and send all its ids. */
static u64 seq_begin(struct rawc *r, u32 blocks, u32 seed)
{
	struct kvmm_open_arg open = {
		.prompt_len = blocks * 16, .max_tokens = 1,
	};
	static struct {
		struct kvmm_match_arg arg;
		u32 ids[32 * 1024];
	} m;
	const struct kvmm_open_res *res;
	u64 seq;
	u32 i;

	ck_assert_int_eq(ask(r, KVMM_OP_SEQ_OPEN, 1, 0, &open, sizeof(open)),
			 0);
	res = result(r);
	ck_assert_int_eq(res->status, 0);
	seq = res->seq;
	m.arg = (struct kvmm_match_arg){
		.seq = seq, .nr_ids = blocks * 16, .flags = KVMM_MATCH_LAST,
	};
	for (i = 0; i < blocks * 16; i++)
		m.ids[i] = seed * 100003 + i;
	ck_assert_int_eq(ask(r, KVMM_OP_SEQ_MATCH, 1, 0, &m,
			     (u32)sizeof(m.arg) + blocks * 16 * 4), 0);
	return seq;
}

static u32 seq_state(const struct rawc *r, u64 seq)
{
	const struct kvmm_seq_status *s = (const void *)(r->d + r->rep.seq_off);

	return load_acquire(&s[KVMM_SEQ_INDEX(seq)].state);
}

/* Map and acknowledge until the sequence is ready. */
static bool seq_wait_ready(struct rawc *r, u64 seq, int ms)
{
	struct kvmm_map_msg msg;
	int i, n;

	for (i = 0; i < ipcd_ms(ms) / 5; i++) {
		if (seq_state(r, seq) == KVMM_SEQ_READY)
			return true;
		n = rawc_take_map(r, &msg, 5);
		if (n > 0) {
			rawc_ack(r, &msg);
			store_release(&r->ctl->cq_head, (u32)r->number);
		}
		if (n != -EAGAIN && n <= 0)
			return false;
	}
	return false;
}

static int step_begin(struct rawc *r, u64 seq, u64 step, u32 tokens)
{
	struct kvmm_begin_arg b = { .seq = seq, .max_tokens = tokens };
	const struct kvmm_begin_res *res;

	ck_assert_int_eq(ask(r, KVMM_OP_STEP_BEGIN, 1, step, &b, sizeof(b)),
			 0);
	res = result(r);
	return res->status;
}

/* ---- clients that are child processes ---- */

static struct {
	pid_t	pid;
	int	ready;
} kid;

/*
 * Start a process that runs @fn, and wait until it writes a byte.  It cannot
 * assert; it exits with 1 instead.
 */
static void kid_start(void (*fn)(int tell))
{
	int p[2];
	char c;

	ck_assert_int_eq(pipe(p), 0);
	kid.pid = fork();
	ck_assert_int_ge(kid.pid, 0);
	if (!kid.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(p[0]);
		fn(p[1]);
		_exit(1);
	}
	close(p[1]);
	ck_assert_msg(read(p[0], &c, 1) == 1, "the client failed");
	close(p[0]);
}

static int kid_wait(int ms)
{
	int status, i;

	for (i = 0; i < ipcd_ms(ms) / 5; i++) {
		if (waitpid(kid.pid, &status, WNOHANG) == kid.pid)
			return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) :
						     WEXITSTATUS(status);
		usleep(5000);
	}
	return -1;
}

static void kid_tell(int tell)
{
	if (write(tell, "x", 1) != 1)
		_exit(1);
}

/* A sequence over a whole pool of 64 blocks, in an open step. */
static void kid_in_step(int tell)
{
	struct rawc r;
	u64 seq;

	rawc_open(&r, &d);
	seq = seq_begin(&r, 60, 1);
	if (!seq_wait_ready(&r, seq, 5000) || step_begin(&r, seq, 1, 960))
		_exit(1);
	kid_tell(tell);
	for (;;)
		pause();
}

static void kid_hangs_up(int tell)
{
	struct rawc r;

	rawc_open(&r, &d);
	close(r.sock);
	kid_tell(tell);
	for (;;)
		pause();
}

static void kid_stops_reading(int tell)
{
	struct rawc r;

	rawc_open(&r, &d);
	seq_begin(&r, 1000, 2);
	kid_tell(tell);
	for (;;)
		pause();
}

/* Fills the pool, gives everything back, detaches and ends. */
static void kid_detaches(int tell)
{
	struct kvmm_seq_arg close_arg;
	struct rawc r;

	rawc_open(&r, &d);
	close_arg.seq = seq_begin(&r, 60, 11);
	if (!seq_wait_ready(&r, close_arg.seq, 5000) ||
	    ask(&r, KVMM_OP_SEQ_CLOSE, 1, 0, &close_arg, sizeof(close_arg)) ||
	    ask(&r, KVMM_OP_DETACH, 0, 0, NULL, 0))
		_exit(1);
	kid_tell(tell);
	_exit(0);
}

/* The process stays longer than the daemon waits for a detached client. */
static void kid_detaches_and_stays(int tell)
{
	struct kvmm_seq_arg close_arg;
	struct rawc r;

	rawc_open(&r, &d);
	close_arg.seq = seq_begin(&r, 60, 11);
	if (!seq_wait_ready(&r, close_arg.seq, 5000) ||
	    ask(&r, KVMM_OP_SEQ_CLOSE, 1, 0, &close_arg, sizeof(close_arg)) ||
	    ask(&r, KVMM_OP_DETACH, 0, 0, NULL, 0))
		_exit(1);
	rawc_close(&r);
	usleep(2500000);
	kid_tell(tell);
	_exit(0);
}

/* Another user fills the pool, too. */
static void kid_other_tenant(int tell)
{
	struct rawc r;

	if (setuid(65534))
		_exit(1);
	rawc_open(&r, &d);
	if (!seq_wait_ready(&r, seq_begin(&r, 60, 12), 10000))
		_exit(1);
	kid_tell(tell);
	_exit(0);
}

/* ---- death ---- */

START_TEST(test_death_in_step)
{
	struct rawc r;
	u64 seq;

	start("--pool-size 2M", NULL);
	kid_start(kid_in_step);
	ck_assert_int_eq(ipcd_number(&d, "vmstat", "step_begin"), 1);
	kill(kid.pid, SIGKILL);
	ck_assert_int_eq(kid_wait(2000), 1000 + SIGKILL);
	ck_assert(ipcd_number_becomes(&d, "vmstat", "client_death", 1, 2000));
	ck_assert_int_ge(ipcd_number(&d, "vmstat", "quarantine"), 60);
	ck_assert(ipcd_number_becomes(&d, "vmstat", "nr_clients", 0, 2000));
	ck_assert(ipcd_logged(&d, "client 0 died: "));
	ck_assert(ipcd_logged(&d, "its memory is back"));
	ipcd_check(&d);

	/* The whole pool is free again. */
	rawc_open(&r, &d);
	seq = seq_begin(&r, 60, 3);
	ck_assert(seq_wait_ready(&r, seq, 5000));
	ipcd_check(&d);
	rawc_close(&r);
	ipcd_stop(&d);
}
END_TEST

/* A client stops inside a step: others go on, and it is killed at the deadline. */
START_TEST(test_death_stopped_in_step)
{
	struct rawc r;
	u64 seq;

	start("--pool-size 2M --step-deadline-ms 300", NULL);
	kid_start(kid_in_step);
	kill(kid.pid, SIGSTOP);
	rawc_open(&r, &d);
	ck_assert_int_eq(ask(&r, KVMM_OP_NOP, 0, 0, NULL, 0), 0);
	/* No sequence waits, so the client is not killed. */
	usleep(500000);
	ck_assert_int_eq(waitpid(kid.pid, NULL, WNOHANG), 0);

	seq = seq_begin(&r, 30, 4);
	ck_assert(seq_wait_ready(&r, seq, 5000));
	ck_assert_int_eq(kid_wait(2000), 1000 + SIGKILL);
	ck_assert_int_eq(ipcd_number(&d, "vmstat", "client_kill"), 1);
	ck_assert(ipcd_logged(&d, "it kept a step open past the deadline"));
	ipcd_check(&d);
	rawc_close(&r);
	ipcd_stop(&d);
}
END_TEST

START_TEST(test_death_hung_up_alive)
{
	start("--pool-size 2M --quiet-deadline-ms 200", NULL);
	kid_start(kid_hangs_up);
	ck_assert_int_eq(kid_wait(5000), 1000 + SIGKILL);
	ck_assert(ipcd_number_becomes(&d, "vmstat", "client_death", 1, 2000));
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

/* One process attaches and detaches more often than there are client slots. */
START_TEST(test_detach_often)
{
	int i, fds;

	start("--pool-size 2M --max-clients 4 --tenant-clients 4", NULL);
	fds = ipcd_nr_fds(d.pid);
	for (i = 0; i < 40; i++) {
		struct rawc r;

		rawc_open(&r, &d);
		ck_assert_int_eq(ask(&r, KVMM_OP_DETACH, 0, 0, NULL, 0), 0);
		rawc_close(&r);
	}
	ck_assert_int_eq(ipcd_number(&d, "vmstat", "client_detach"), 40);
	ck_assert_int_eq(ipcd_number(&d, "vmstat", "client_death"), 0);
	ck_assert(ipcd_logged(&d, "client 0 detached: "));
	ck_assert(!ipcd_logged(&d, "died"));
	for (i = 0; i < 600 && ipcd_nr_fds(d.pid) > fds; i++)
		usleep(5000);
	ck_assert_int_le(ipcd_nr_fds(d.pid), fds + 1);	/* + a pidfd */
	ipcd_stop(&d);
}
END_TEST

/*
 * A detached client's memory goes to another tenant after its process has
 * ended: no process has it mapped any more.
 */
START_TEST(test_detach_then_other_tenant)
{
	if (geteuid()) {
		printf("skipped test_detach_then_other_tenant: it takes two users, so it takes root\n");
		return;
	}
	tmp_open_to_others();
	start("--pool-size 2M --socket-mode 0666", NULL);
	ck_assert_int_eq(chmod(d.dir, 0711), 0);
	kid_start(kid_detaches);
	ck_assert_int_eq(kid_wait(5000), 0);
	kid_start(kid_other_tenant);
	ck_assert_int_eq(kid_wait(5000), 0);
	ck_assert_int_ge(ipcd_number(&d, "vmstat", "extent_release"), 20);
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

/* The same for a lingering client that lives on until its slot is used again. */
START_TEST(test_ghost_then_other_tenant)
{
	if (geteuid()) {
		printf("skipped test_ghost_then_other_tenant: it takes two users, so it takes root\n");
		return;
	}
	tmp_open_to_others();
	start("--pool-size 2M --socket-mode 0666", NULL);
	ck_assert_int_eq(chmod(d.dir, 0711), 0);
	kid_start(kid_detaches_and_stays);
	ck_assert_int_eq(kid_wait(10000), 0);
	kid_start(kid_other_tenant);
	ck_assert_int_eq(kid_wait(5000), 0);
	ck_assert_int_ge(ipcd_number(&d, "vmstat", "extent_release"), 20);
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

START_TEST(test_clients_limit)
{
	struct rawc r[3];
	struct kvmm_attach_req req;

	start("--pool-size 2M --tenant-clients 2", NULL);
	rawc_open(&r[0], &d);
	rawc_open(&r[1], &d);
	rawc_request(&req);
	ck_assert_int_eq(rawc_attach(&r[2], &d, &req), -EUSERS);
	ck_assert_ptr_nonnull(strstr(r[2].rep.text, "--tenant-clients"));
	rawc_close(&r[0]);
	rawc_close(&r[1]);
	rawc_close(&r[2]);
	ipcd_stop(&d);
}
END_TEST

START_TEST(test_shutdown_is_told)
{
	struct rawc r;

	start("--pool-size 2M", NULL);
	rawc_open(&r, &d);
	kill(d.pid, SIGINT);
	ck_assert(rawc_state(&r, KVMM_CLIENT_SHUTDOWN));
	ck_assert(rawc_hung_up(&r, 2000));
	ck_assert_int_eq(ipcd_wait(&d, 5000), 0);
	rawc_close(&r);
	ipcd_discard(&d);
}
END_TEST

/* ---- extents ---- */

/*
 * More extents than one message carries, and more messages than the socket of a
 * client that does not read takes: every extent arrives once.
 */
START_TEST(test_extents_batches)
{
	struct kvmm_map_msg msg;
	struct rawc r, other;
	u32 got = 0, largest = 0;
	u8 seen[1024] = { 0 };
	int n, i;

	start("--pool-size 64M --min-token-bytes 1024", NULL);
	rawc_open(&r, &d);
	ck_assert(seq_wait_ready(&r, seq_begin(&r, 1900, 5), 20000));

	rawc_open(&other, &d);
	usleep(100000);
	while (got < 950) {
		n = rawc_take_map(&other, &msg, 5000);
		ck_assert_int_gt(n, 0);
		ck_assert_int_le(n, KVMM_MAP_BATCH);
		for (i = 0; i < n; i++) {
			ck_assert_uint_lt(msg.entry[i].extent, 1024);
			ck_assert_uint_eq(seen[msg.entry[i].extent]++, 0);
		}
		largest = max(largest, (u32)n);
		got += (u32)n;
		rawc_ack(&other, &msg);
	}
	ck_assert_uint_gt(largest, 1);
	rawc_close(&other);
	rawc_close(&r);
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

/* A client that reads nothing delays neither the daemon nor other clients. */
START_TEST(test_extents_unread)
{
	struct rawc r;

	start("--pool-size 64M --min-token-bytes 1024", NULL);
	kid_start(kid_stops_reading);
	kill(kid.pid, SIGSTOP);
	rawc_open(&r, &d);
	ck_assert(seq_wait_ready(&r, seq_begin(&r, 20, 6), 10000));
	ck_assert_int_eq(ipcd_nr_fds(d.pid) < 1200, 1);
	rawc_close(&r);
	kill(kid.pid, SIGKILL);
	ck_assert_int_eq(kid_wait(2000), 1000 + SIGKILL);
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

/* ---- failures at named points ---- */

static const char * const attach_faults[] = {
	"KVMM_FAULT=segment_create:1",
	"KVMM_FAULT=segment_create:2",
	"KVMM_FAULT=pidfd_open:2",	/* the first call was the wait for start */
};

/*
 * A kernel without SO_PEERPIDFD: clients are identified and their death is
 * noticed all the same.
 */
START_TEST(test_fault_peer_pidfd)
{
	u32 i;

	start("--pool-size 2M --quiet-deadline-ms 200",
	      "KVMM_FAULT=peer_pidfd");
	kid_start(kid_in_step);
	kill(kid.pid, SIGKILL);
	ck_assert_int_eq(kid_wait(2000), 1000 + SIGKILL);
	ck_assert(ipcd_number_becomes(&d, "vmstat", "client_death", 1, 2000));
	kid_start(kid_hangs_up);
	ck_assert_int_eq(kid_wait(5000), 1000 + SIGKILL);
	/* The log line may come after the end of the process. */
	for (i = 0; i < 100 && !ipcd_logged(&d, "it hung up and did not end"); i++)
		usleep(20000);
	ck_assert(ipcd_logged(&d, "it hung up and did not end"));
	ipcd_check(&d);
	ipcd_stop(&d);
}
END_TEST

START_TEST(test_fault_attach)
{
	struct kvmm_attach_req req;
	struct rawc r;
	int fds;

	start("--pool-size 2M", attach_faults[_i]);
	fds = ipcd_nr_fds(d.pid);
	rawc_request(&req);
	ck_assert_int_lt(rawc_attach(&r, &d, &req), 0);
	rawc_close(&r);
	ipcd_check(&d);
	ck_assert_int_le(ipcd_nr_fds(d.pid), fds + 1);	/* + a pidfd */

	rawc_open(&r, &d);
	ck_assert(seq_wait_ready(&r, seq_begin(&r, 4, 7), 5000));
	rawc_close(&r);
	ipcd_stop(&d);
}
END_TEST

/* Memory for an extent fails once: the daemon tries again, and the sequence gets ready. */
START_TEST(test_fault_extent_create)
{
	struct rawc r;

	start("--pool-size 2M", "KVMM_FAULT=extent_create:1");
	rawc_open(&r, &d);
	ck_assert(seq_wait_ready(&r, seq_begin(&r, 4, 8), 10000));
	ck_assert(ipcd_logged(&d, "cannot be made"));
	ipcd_check(&d);
	rawc_close(&r);
	ipcd_stop(&d);
}
END_TEST

/* A device call hangs: other clients are served, and the log reports the hang. */
START_TEST(test_fault_extent_stall)
{
	struct rawc r, other;
	u64 seq;
	int i;

	start("--pool-size 2M", "KVMM_FAULT=extent_stall:1");
	rawc_open(&r, &d);
	seq = seq_begin(&r, 4, 9);
	rawc_open(&other, &d);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(ask(&other, KVMM_OP_NOP, 0, 0, NULL, 0), 0);
	ck_assert_uint_eq(seq_state(&r, seq), KVMM_SEQ_WAITING);
	ck_assert(seq_wait_ready(&r, seq, 10000));
	ck_assert(ipcd_logged(&d, "in the making"));
	rawc_close(&other);
	rawc_close(&r);
	ipcd_stop(&d);
}
END_TEST

START_TEST(test_fault_extent_send)
{
	struct rawc r;

	start("--pool-size 2M", "KVMM_FAULT=extent_send:1");
	rawc_open(&r, &d);
	ck_assert(seq_wait_ready(&r, seq_begin(&r, 4, 10), 10000));
	rawc_close(&r);
	ipcd_stop(&d);
}
END_TEST

static Suite *life_suite(void)
{
	Suite *s = suite_create("ipc-life");
	TCase *tc = tcase_create("life");

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup_dir, NULL);
	tcase_add_test(tc, test_death_in_step);
	tcase_add_test(tc, test_death_stopped_in_step);
	tcase_add_test(tc, test_death_hung_up_alive);
	tcase_add_test(tc, test_detach_often);
	tcase_add_test(tc, test_detach_then_other_tenant);
	tcase_add_test(tc, test_ghost_then_other_tenant);
	tcase_add_test(tc, test_clients_limit);
	tcase_add_test(tc, test_shutdown_is_told);
	tcase_add_test(tc, test_extents_batches);
	tcase_add_test(tc, test_extents_unread);
	tcase_add_loop_test(tc, test_fault_attach, 0,
			    ARRAY_SIZE(attach_faults));
	tcase_add_test(tc, test_fault_peer_pidfd);
	tcase_add_test(tc, test_fault_extent_create);
	tcase_add_test(tc, test_fault_extent_stall);
	tcase_add_test(tc, test_fault_extent_send);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(life_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
