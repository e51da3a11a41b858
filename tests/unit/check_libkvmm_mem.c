// SPDX-License-Identifier: Apache-2.0
/*
 * check_libkvmm_mem.c - extents, records and tables of libkvmm
 *
 * Extents that the client maps and unmaps, and its acknowledgements; status
 * records and block tables while they change, and invalid ones that no honest
 * daemon writes. budget: 30 s
 */
#include <pthread.h>
#include <sys/wait.h>

#include "tests/unit/libkvmm_fixture.h"

/* ------------------------------------------------------------------ */
/* Extents                                                             */

/* Can this process read @p?  The check causes no fault. */
static bool readable(const void *p)
{
	int fds[2];
	bool yes;

	ck_assert_int_eq(pipe(fds), 0);
	yes = write(fds[1], p, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return yes;
}

static char *extent_at(u32 i)
{
	return (char *)kvmm_pool(k) + i * (size_t)FAKE_EXT_SIZE;
}

/* Wait for @nr acknowledgements, without a call of the client. */
static void await_acks(u32 nr)
{
	u32 tries;

	for (tries = 0; fake_acks(&f) < nr && tries < 1000; tries++)
		usleep(1000);
	ck_assert_uint_eq(fake_acks(&f), nr);
}

static void wait_acks(u32 nr)
{
	u32 tries;

	for (tries = 0; fake_acks(&f) < nr && tries < 2000; tries++) {
		ck_assert_int_ge(kvmm_poll_extents(k), 0);
		usleep(1000);
	}
	ck_assert_uint_eq(fake_acks(&f), nr);
}

/* Hand extent @i to the client; the caller keeps its memfd in @fd. */
static void hand_out(u32 i, u32 generation, int *fd)
{
	struct kvmm_map_entry e = { i, generation };

	*fd = fake_memfd(FAKE_EXT_SIZE);
	WRITE_ONCE(fake_extent(&f, i)->generation, generation);
	store_release(&fake_extent(&f, i)->state, KVMM_EXTENT_MAP);
	fake_send_map(&f, KVMM_MAP_MAGIC, 1, &e, fd, 1);
	fake_event(&f, KVMM_EV_MAP, i);
}

START_TEST(test_map)
{
	char c = 0;
	int fd[2];

	hand_out(3, 9, &fd[0]);
	hand_out(7, 1, &fd[1]);
	wait_acks(2);
	ck_assert_uint_eq(fake_ack(&f, 3).generation, 9);
	ck_assert_uint_eq(fake_ack(&f, 3).what, KVMM_ACK_MAP);
	ck_assert_uint_eq(fake_ack(&f, 7).what, KVMM_ACK_MAP);
	ck_assert(!readable(extent_at(2)));
	ck_assert(!readable(extent_at(4)));
	extent_at(3)[FAKE_EXT_SIZE - 1] = 'x';
	ck_assert_int_eq(pread(fd[0], &c, 1, FAKE_EXT_SIZE - 1), 1);
	ck_assert_int_eq(c, 'x');
	extent_at(7)[0] = 'y';
	ck_assert_int_eq(pread(fd[1], &c, 1, 0), 1);
	ck_assert_int_eq(c, 'y');
	close(fd[0]);
	close(fd[1]);
}
END_TEST

static void *late_map(void *arg)
{
	int fd;

	usleep(30000);
	hand_out(1, 1, &fd);
	close(fd);
	return NULL;
}

/* The client maps extents while it sleeps or spins for something else. */
START_TEST(test_map_while_waiting)
{
	pthread_t thread;
	u32 n;

	kvmm_detach(k);
	attach_spinning(spins[_i]);
	ck_assert_int_eq(pthread_create(&thread, NULL, late_map, NULL), 0);
	/* A wait may end early on a busy machine, but not often. */
	for (n = 0; n < 20 && !fake_acks(&f); n++) {
		(void)!kvmm_wait(k, 1000000000);
		ck_assert_int_eq(kvmm_nop(k), 0);
	}
	ck_assert_uint_eq(fake_acks(&f), 1);
	pthread_join(thread, NULL);
	ck_assert(readable(extent_at(1)));
}
END_TEST

/* No event comes: the client looks at the socket all the same. */
START_TEST(test_map_without_event)
{
	struct kvmm_map_entry e = { 2, 1 };
	int fd = fake_memfd(FAKE_EXT_SIZE);

	WRITE_ONCE(fake_extent(&f, 2)->generation, 1);
	store_release(&fake_extent(&f, 2)->state, KVMM_EXTENT_MAP);
	fake_send_map(&f, KVMM_MAP_MAGIC, 1, &e, &fd, 1);
	close(fd);
	while (!fake_acks(&f))
		kvmm_wait(k, 10000000);
	ck_assert(readable(extent_at(2)));
}
END_TEST

START_TEST(test_children_inherit_nothing)
{
	int fd, status;
	pid_t pid;

	hand_out(0, 1, &fd);
	wait_acks(1);
	ck_assert(readable(extent_at(0)));
	pid = fork();
	if (!pid)
		_exit(readable(extent_at(0)) || readable(extent_at(1)));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close(fd);
}
END_TEST

START_TEST(test_revoke)
{
	int fd;

	hand_out(4, 1, &fd);
	wait_acks(1);
	store_release(&fake_extent(&f, 4)->state, KVMM_EXTENT_REVOKE);
	fake_event(&f, KVMM_EV_REVOKE, 4);
	wait_acks(2);
	ck_assert_uint_eq(fake_ack(&f, 4).what, KVMM_ACK_REVOKE);
	ck_assert(!readable(extent_at(4)));
	/* A revoke is acknowledged once. */
	fake_event(&f, KVMM_EV_REVOKE, 4);
	ck_assert_int_eq(kvmm_poll_extents(k), 0);
	ck_assert_int_eq(kvmm_nop(k), 0);
	ck_assert_uint_eq(fake_acks(&f), 2);
	/* The extent comes back with another generation. */
	close(fd);
	hand_out(4, 2, &fd);
	wait_acks(3);
	ck_assert_uint_eq(fake_ack(&f, 4).what, KVMM_ACK_MAP);
	ck_assert_uint_eq(fake_ack(&f, 4).generation, 2);
	ck_assert(readable(extent_at(4)));
	close(fd);
}
END_TEST

/*
 * The extent is revoked before its descriptor arrives, and the client
 * acknowledges that it has no mapping.  The late descriptor is memory that the
 * client must not map.
 */
START_TEST(test_map_after_revoke)
{
	struct kvmm_map_entry e = { 4, 1 };
	int fd = fake_memfd(FAKE_EXT_SIZE);

	WRITE_ONCE(fake_extent(&f, 4)->generation, 1);
	store_release(&fake_extent(&f, 4)->state, KVMM_EXTENT_REVOKE);
	fake_event(&f, KVMM_EV_REVOKE, 4);
	wait_acks(1);
	ck_assert_uint_eq(fake_ack(&f, 4).what, KVMM_ACK_REVOKE);
	/* _i: no client has the extent now, or this one maps it once more. */
	WRITE_ONCE(fake_extent(&f, 4)->generation, _i ? 3 : 1);
	store_release(&fake_extent(&f, 4)->state,
		      _i ? KVMM_EXTENT_MAP : KVMM_EXTENT_ABSENT);
	fake_send_map(&f, KVMM_MAP_MAGIC, 1, &e, &fd, 1);
	fake_event(&f, KVMM_EV_MAP, 4);
	ck_assert_int_eq(kvmm_poll_extents(k), 0);
	ck_assert(!readable(extent_at(4)));
	close(fd);
	hand_out(4, 3, &fd);
	wait_acks(2);
	ck_assert_uint_eq(fake_ack(&f, 4).generation, 3);
	ck_assert(readable(extent_at(4)));
	close(fd);
}
END_TEST

/* An acknowledgement must not submit requests that are only prepared. */
START_TEST(test_ack_waits_for_submit)
{
	void *args;
	int fd;

	ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	hand_out(1, 1, &fd);
	ck_assert_int_eq(kvmm_poll_extents(k), 1);
	usleep(50000);
	ck_assert_uint_eq(fake_acks(&f), 0);
	ck_assert_int_eq(kvmm_submit(k), 0);
	await_acks(1);
	ck_assert_uint_eq(fake_ops(&f, KVMM_OP_NOP), 1);
	close(fd);
}
END_TEST

/* A full ring delays the acknowledgement, but does not lose it. */
START_TEST(test_ack_waits_for_room)
{
	struct kvmm_done done;
	void *args;
	int fd;
	u32 i;

	for (i = 0; i < FAKE_RING; i++)
		ck_assert_ptr_nonnull(kvmm_prep(k, KVMM_OP_NOP, 0, 0, &args));
	ck_assert_int_eq(kvmm_submit(k), 0);
	hand_out(1, 1, &fd);
	ck_assert_int_eq(kvmm_poll_extents(k), 1);
	for (i = 0; i < FAKE_RING; i++) {
		while (!kvmm_reap(k, &done))
			ck_assert_int_eq(kvmm_wait(k, 1000000000), 0);
	}
	ck_assert_uint_eq(fake_acks(&f), 0);
	kvmm_release(k);
	await_acks(1);
	close(fd);
}
END_TEST

START_TEST(test_bad_map_message)
{
	struct kvmm_map_entry e[2] = { { 1, 1 }, { 2, 1 } };
	int fds[2] = { fake_memfd(FAKE_EXT_SIZE), fake_memfd(4096) };
	const char *says = "no map message";

	switch (_i) {
	case 0:
		fake_send_map(&f, 42, 1, e, fds, 1);
		break;
	case 1:
		fake_send_map(&f, KVMM_MAP_MAGIC, 2, e, fds, 1);
		break;
	case 2:
		fake_send_map(&f, KVMM_MAP_MAGIC, 1, e, fds, 2);
		break;
	case 3:
		fake_send_map(&f, KVMM_MAP_MAGIC, 1, e, fds, 0);
		break;
	case 4:
		e[0].extent = FAKE_EXTENTS;
		fake_send_map(&f, KVMM_MAP_MAGIC, 1, e, fds, 1);
		says = "sent extent 8 of 8";
		break;
	case 5:
		fake_send_map(&f, KVMM_MAP_MAGIC, 2, e, fds, 2);
		says = "extent 2 is shorter";
		break;
	}
	fake_event(&f, KVMM_EV_MAP, 1);
	ck_assert_int_eq(kvmm_poll_extents(k), -ECONNRESET);
	check_ended(says);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ------------------------------------------------------------------ */
/* Records and tables                                                  */

START_TEST(test_status)
{
	struct kvmm_seq_status *rec = fake_seq(&f, 5), st;

	rec->generation = 3;
	rec->state = KVMM_SEQ_READY;
	rec->valid_len = 77;
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(5, 3), &st), 0);
	ck_assert_uint_eq(st.valid_len, 77);
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(5, 2), &st), -ENOENT);
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(FAKE_SEQS, 3), &st),
			 -ENOENT);
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(0xffffffff, 3), &st),
			 -ENOENT);
	rec->state = KVMM_SEQ_CLOSED;
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(5, 3), &st), -ENOENT);
}
END_TEST

/* A record that stays odd: the daemon stopped, or died. */
START_TEST(test_status_stays_odd)
{
	struct kvmm_seq_status *rec = fake_seq(&f, 5), st;

	rec->generation = 3;
	rec->state = KVMM_SEQ_READY;
	rec->seqcount = 1;
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(5, 3), &st), -EAGAIN);
	fake_die(&f);
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(5, 3), &st), -ECONNRESET);
	rec->seqcount = 2;
	ck_assert_int_eq(kvmm_seq_status(k, KVMM_SEQ(5, 3), &st), 0);
}
END_TEST

#define TABLE_SEQ	KVMM_SEQ(6, 4)
#define ENTRIES		KVMM_TABLE_ENTRIES

/* Three pages in a chain, 9 -> 2 -> 11, with entry i holding 1000 + i. */
static void make_chain(void)
{
	static const u32 page[3] = { 9, 2, 11 };
	struct kvmm_seq_status *rec = fake_seq(&f, 6);
	struct kvmm_table_page *p;
	u32 i, j;

	rec->generation = KVMM_SEQ_GEN(TABLE_SEQ);
	rec->state = KVMM_SEQ_READY;
	rec->table[0] = page[0];
	for (i = 0; i < 3; i++) {
		p = fake_table(&f, page[i]);
		p->seq = TABLE_SEQ;
		p->group = 0;
		p->first = i * ENTRIES;
		p->next = i < 2 ? page[i + 1] : KVMM_NO_INDEX;
		for (j = 0; j < ENTRIES; j++)
			p->entry[j] = 1000 + i * ENTRIES + j;
	}
}

static int read_table(u32 first, u32 nr)
{
	u32 out[4 * ENTRIES], i;
	int ret = kvmm_seq_table(k, TABLE_SEQ, 0, first, nr, out);

	for (i = 0; !ret && i < nr; i++)
		ck_assert_uint_eq(out[i], 1000 + first + i);
	return ret;
}

START_TEST(test_table)
{
	u32 out, i;

	make_chain();
	for (i = 0; i < 3 * ENTRIES; i++)
		ck_assert_int_eq(read_table(i, 1), 0);
	ck_assert_int_eq(read_table(0, 3 * ENTRIES), 0);
	ck_assert_int_eq(read_table(ENTRIES - 1, ENTRIES + 2), 0);
	ck_assert_int_eq(read_table(2 * ENTRIES, ENTRIES), 0);
	ck_assert_int_eq(read_table(0, 0), 0);
	ck_assert_int_eq(read_table(0, 3 * ENTRIES + 1), -ERANGE);
	ck_assert_int_eq(read_table(3 * ENTRIES, 1), -ERANGE);
	ck_assert_int_eq(read_table(0xffffffff, 1), -ERANGE);
	ck_assert_int_eq(kvmm_seq_table(k, TABLE_SEQ, KVMM_MAX_GROUPS, 0, 1,
					&out), -ERANGE);
	ck_assert_int_eq(kvmm_seq_table(k, TABLE_SEQ + 1, 0, 0, 1, &out),
			 -ENOENT);
	/* Pages that were trimmed in front. */
	fake_seq(&f, 6)->table[0] = 2;
	ck_assert_int_eq(read_table(ENTRIES, 2 * ENTRIES), 0);
	ck_assert_int_eq(read_table(ENTRIES - 1, 1), -ERANGE);
	fake_seq(&f, 6)->table[0] = KVMM_NO_INDEX;
	ck_assert_int_eq(read_table(0, 1), -ERANGE);
}
END_TEST

/* Chains that an honest daemon never writes. */
START_TEST(test_table_is_broken)
{
	make_chain();
	switch (_i) {
	case 0:
		fake_table(&f, 2)->next = 9;		/* a circle */
		break;
	case 1:
		fake_table(&f, 2)->next = 2;		/* a circle of one page */
		break;
	case 2:
		fake_table(&f, 9)->next = FAKE_TABLES;	/* outside of the table */
		break;
	case 3:
		fake_table(&f, 2)->seq = TABLE_SEQ + 1;	/* of another sequence */
		break;
	case 4:
		fake_table(&f, 11)->group = 1;
		break;
	case 5:
		fake_table(&f, 2)->first = 7;
		break;
	case 6:
		fake_seq(&f, 6)->table[0] = 0x7fffffff;
		break;
	}
	ck_assert_int_eq(read_table(0, 3 * ENTRIES), -EAGAIN);
}
END_TEST

static u32 stop_writer;

/* Moves the chain between two first pages, each time in another epoch. */
static void *table_writer(void *arg)
{
	struct kvmm_seq_status *rec = fake_seq(&f, 6);
	struct kvmm_table_page *p;
	u32 i, j, value;

	for (i = 0; !load_acquire(&stop_writer); i++) {
		p = fake_table(&f, i & 1);
		WRITE_ONCE(p->next, KVMM_NO_INDEX);
		value = i;
		for (j = 0; j < ENTRIES; j++)
			WRITE_ONCE(p->entry[j], value);
		ring_write_begin(&rec->seqcount);
		WRITE_ONCE(rec->table[0], i & 1);
		WRITE_ONCE(rec->seq_epoch, i);
		ring_write_end(&rec->seqcount);
		if (i % 64 == 0)
			usleep(100);
	}
	return NULL;
}

START_TEST(test_table_under_change)
{
	u32 out[ENTRIES], i, j, whole = 0;
	pthread_t thread;
	int ret;

	make_chain();
	for (i = 0; i < 2; i++) {
		fake_table(&f, i)->seq = TABLE_SEQ;
		fake_table(&f, i)->next = KVMM_NO_INDEX;
		memset(fake_table(&f, i)->entry, 0, ENTRIES * sizeof(u32));
	}
	fake_seq(&f, 6)->table[0] = 0;
	stop_writer = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, table_writer, NULL), 0);
	for (i = 0; i < 20000; i++) {
		ret = kvmm_seq_table(k, TABLE_SEQ, 0, 0, ENTRIES, out);
		if (ret == -EAGAIN)
			continue;
		ck_assert_int_eq(ret, 0);
		whole++;
		for (j = 1; j < ENTRIES; j++)
			ck_assert_uint_eq(out[j], out[0]);
	}
	store_release(&stop_writer, 1);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(whole, 0);
}
END_TEST

static void add_memory(TCase *tc)
{
	tcase_add_test(tc, test_map);
	tcase_add_loop_test(tc, test_map_while_waiting, 0, ARRAY_SIZE(spins));
	tcase_add_test(tc, test_map_without_event);
	tcase_add_test(tc, test_children_inherit_nothing);
	tcase_add_test(tc, test_revoke);
	tcase_add_loop_test(tc, test_map_after_revoke, 0, 2);
	tcase_add_test(tc, test_ack_waits_for_submit);
	tcase_add_test(tc, test_ack_waits_for_room);
	tcase_add_loop_test(tc, test_bad_map_message, 0, 6);
	tcase_add_test(tc, test_status);
	tcase_add_test(tc, test_status_stays_odd);
	tcase_add_test(tc, test_table);
	tcase_add_loop_test(tc, test_table_is_broken, 0, 7);
	tcase_add_test(tc, test_table_under_change);
}

int main(void)
{
	Suite *s = suite_create("libkvmm-mem");
	TCase *tc = new_case("memory");

	add_memory(tc);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
