// SPDX-License-Identifier: Apache-2.0
/*
 * resume.c - the daemon died, and the next one goes on with its memory
 *
 * The end of the socket says that the daemon has died.  If it granted
 * KVMM_FEAT_RESUME, this attachment is away from then on.  kvmm-hold keeps the
 * listening socket, so a new connection works at once, and the answer comes
 * when the next daemon serves.  Meanwhile requests can be prepared and
 * submitted as far as the old ring has room.  The caller only notices a longer
 * wait.
 *
 * The old segments stay mapped as long as they are needed.  The completions of
 * the old daemon are in the old completion ring, perhaps one of them behind its
 * tail (the answer says which request was the last).  Callers read their
 * results in place until they release them.  Requests that did not take effect
 * are copied to the new ring with all arguments and sent again.  Indices and
 * request numbers go on, so a caller that holds one notices no change.  Extents
 * stay mapped.
 *
 * If the next daemon refuses, or does not answer within LK_RESUME_NS, the
 * attachment ends as it would have without this file.
 *
 * A client that resumes declares that no device works any more on an older
 * step: if the next daemon salvages, the blocks that such a step may write are
 * free from then on.  So on a GPU lk_resume() waits for the context before it
 * asks.  It waits for nothing else, and is called again from every wait.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/libkvmm/internal.h"

/* Unmap old segments from which every result is released. */
void lk_old_release(struct kvmm *k)
{
	struct lk_old *o;

	while ((o = k->old) && (s32)(k->cons.head - o->until) >= 0) {
		k->old = o->next;
		munmap((void *)o->seg_d, o->bytes);
		free(o);
	}
}

static void hang_up(struct kvmm *k)
{
	if (k->sock >= 0)
		close(k->sock);
	k->sock = -1;
	k->asked = false;
}

/**
 * lk_resume_begin() - the socket has ended
 * Return: true: the attachment is away; false: it has ended.
 */
bool lk_resume_begin(struct kvmm *k)
{
	if (!(k->info.features & KVMM_FEAT_RESUME) || k->ended)
		return false;
	/* Take the last completions of the dead daemon first. */
	if (lk_look_completions(k) < 0)
		return false;
	hang_up(k);
	k->away = true;
	k->away_since = lk_now();
	k->retry_at = 0;
	return true;
}

/* ------------------------------------------------------------------ */
/* Request */

/* Number of the last request with a completion. */
static u64 last_seen(const struct kvmm *k)
{
	/* Numbers and indices rise together. */
	return k->number - (k->sub.tail - k->cons.tail);
}

static int send_request(struct kvmm *k)
{
	struct kvmm_attach_req req = {
		.magic		= KVMM_ATTACH_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.flags		= KVMM_ATTACH_RESUME,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.features	= KVMM_FEAT_RESUME,
		.resume_epoch	= k->info.daemon_epoch,
		.resume_token	= { k->info.token[0], k->info.token[1] },
		.resume_seen	= last_seen(k),
		.resume_client	= k->info.client,
		.resume_index	= k->cons.tail,
	};

	return send(k->sock, &req, sizeof(req), MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       sizeof(req) ? 0 : -errno;
}

/*
 * Connect and send the request to resume.  Return: 0; -EAGAIN: try later;
 * another error: there is no daemon, and none will come.
 */
static int ask(struct kvmm *k, s64 now)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int err;

	if (now < k->retry_at)
		return -EAGAIN;
	k->retry_at = now + LK_RETRY_NS;
	memcpy(addr.sun_path, k->path,
	       min(strlen(k->path), sizeof(addr.sun_path) - 1));
	lk_spare_give(k);
	k->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
			 SOCK_NONBLOCK, 0);
	if (k->sock < 0)
		return -EAGAIN;
	if (connect(k->sock, (struct sockaddr *)&addr, sizeof(addr))) {
		err = -errno;
		hang_up(k);
		/* kvmm-hold, which kept the socket, has ended too. */
		return err == -ECONNREFUSED || err == -ENOENT ? err : -EAGAIN;
	}
	if (send_request(k)) {
		hang_up(k);
		return -EAGAIN;
	}
	k->asked = true;
	return 0;
}

/* ------------------------------------------------------------------ */
/* Resume */

/* Is it the same attachment? */
static bool same_shape(const struct kvmm_attach_rep *a,
		       const struct kvmm_attach_rep *b)
{
#define SAME(f) (a->f == b->f)
	if (memcmp(a->stride, b->stride, sizeof(a->stride)) ||
	    memcmp(a->shard_off, b->shard_off, sizeof(a->shard_off)))
		return false;
	return SAME(daemon_epoch) && SAME(client) && SAME(domain) &&
	       SAME(pool_bytes) && SAME(extent_size) && SAME(nr_extents) &&
	       SAME(unit) && SAME(block_bytes) && SAME(nr_shards) &&
	       SAME(pool) && SAME(pool_extents) &&
	       SAME(sq_entries) && SAME(arg_bytes) && SAME(cq_entries) &&
	       SAME(result_bytes) && SAME(max_seqs) && SAME(nr_tables) &&
	       SAME(max_steps) && SAME(max_batch) && SAME(c_bytes) &&
	       SAME(sq_off) && SAME(arg_off) && SAME(memory) && SAME(device);
#undef SAME
}

/*
 * Take the one completion that may lie behind the old tail.  Return: do both
 * agree?
 */
static bool take_last(struct kvmm *k, const struct kvmm_attach_rep *rep)
{
	const struct kvmm_cqe *q;

	if (rep->ring_index == k->cons.tail)
		return rep->committed == last_seen(k);
	if (rep->ring_index != k->cons.tail + 1 ||
	    k->submitted == k->cons.tail ||
	    rep->committed != last_seen(k) + 1)
		return false;
	q = &k->cqe[k->cons.tail & (k->info.cq_entries - 1)];
	if (q->number != rep->committed)
		return false;
	k->cons.tail++;
	return true;
}

/* Show the new daemon the requests that did not take effect. */
static void send_again(struct kvmm *k)
{
	static const u64 one = 1;

	k->sub.head = k->first;
	store_release(&k->ctl->sq_tail, k->submitted);
	if (k->submitted != k->first && write(k->bell, &one, sizeof(one)) < 0)
		return;
}

/* Map the new segments; on failure the old ones stay. */
static int map_new(struct kvmm *k, const struct kvmm_attach_rep *rep,
		   const int *fds, char *text)
{
	const struct kvmm_attach_rep was = k->info;
	void *c = k->seg_c, *d = (void *)k->seg_d;
	int ret;

	k->info = *rep;
	k->seg_c = NULL;
	k->seg_d = NULL;
	ret = lk_map_segments(k, fds, text);
	if (!ret)
		return 0;
	if (k->seg_c)
		munmap(k->seg_c, rep->c_bytes);
	k->info = was;
	k->seg_c = c;
	k->seg_d = d;
	return ret;
}

/* Replace the old segments by the new ones.  On success @o belongs to @k. */
static int switch_over(struct kvmm *k, const struct kvmm_attach_rep *rep,
		       const int *fds, struct lk_old *o, char *text)
{
	void *old_c = k->seg_c;
	const u32 tail = k->sub.tail, head = k->cons.head;
	const u32 from = k->info.sq_off;
	struct lk_old **end = &k->old;
	int ret;

	*o = (struct lk_old){
		.until = rep->ring_index, .seg_d = k->seg_d,
		.bytes = k->info.d_bytes, .cqe = k->cqe, .result = k->result,
	};
	ret = map_new(k, rep, fds, text);
	if (ret)
		return ret;
	while (*end)
		end = &(*end)->next;
	*end = o;
	memcpy((char *)k->seg_c + from, (char *)old_c + from,
	       k->info.c_bytes - from);
	lk_place_pointers(k, rep->ring_index);
	k->sub.tail = tail;
	k->cons.head = head;
	munmap(old_c, rep->c_bytes);
	return 0;
}

static int go_on(struct kvmm *k, const struct kvmm_attach_rep *rep,
		 const int *fds)
{
	char text[LK_TEXT_LEN];
	struct lk_old *o;

	if (!same_shape(&k->info, rep) || !rep->resumed || !take_last(k, rep))
		return lk_end(k, "the next kvmm daemon has another state of this attachment");
	o = malloc(sizeof(*o));
	if (!o)
		return lk_end(k, "no memory to resume the attachment");
	if (switch_over(k, rep, fds, o, text)) {
		free(o);
		return lk_end(k, "%s", text);
	}
	close(k->bell);
	k->bell = fds[2];
	lk_spare_take(k);
	k->away = false;
	k->asked = false;
	k->event_head = 0;
	k->event_scan = 0;
	k->event_told = 0;
	k->news = true;
	k->nr_resumed++;
	k->nr_salvaged += rep->resumed == KVMM_RESUMED_SALVAGED;
	k->looked = lk_now();
	lk_old_release(k);
	send_again(k);
	return 0;
}

/* Take the answer.  Return: 0, also when the daemon died again; -ECONNRESET. */
static int take_answer(struct kvmm *k)
{
	int fds[KVMM_MAP_BATCH], nr_fds = 0, ret, i;
	struct kvmm_attach_rep rep;
	char text[LK_TEXT_LEN];

	ret = lk_receive_reply(k->sock, k->path, 0, &rep, fds, &nr_fds, text);
	if (ret == -ETIMEDOUT || ret == -EAGAIN)
		return 0;
	if (ret == -ECONNRESET) {
		hang_up(k);
		return 0;
	}
	if (ret >= 0)
		ret = lk_judge_reply(k->path, &rep, ret, nr_fds, text);
	if (ret)
		ret = lk_end(k, "the kvmm daemon died; the next one says: %s",
			     text);
	else
		ret = go_on(k, &rep, fds);
	for (i = 0; i < nr_fds; i++) {
		if (fds[i] != k->bell)
			close(fds[i]);
	}
	return ret;
}

/**
 * lk_resume() - try to resume the attachment, as far as possible now
 * Return: 0: k->away says whether it is resumed; -ECONNRESET.
 */
int lk_resume(struct kvmm *k)
{
	const s64 now = lk_now();
	int err = 0;

	if (!k->asked && lk_device_quiet(k))
		return k->ended;
	if (!k->asked)
		err = ask(k, now);
	if (err && err != -EAGAIN)
		return lk_end(k, "the kvmm daemon died; start it again with kvmm-hold");
	if (k->asked && take_answer(k))
		return k->ended;
	if (k->away && now - k->away_since > LK_RESUME_NS)
		return lk_end(k, "the kvmm daemon died and did not come back within %d s",
			      (int)(LK_RESUME_NS / 1000000000));
	return 0;
}

/* Sleep until the answer may be there, for at most @ns. */
void lk_resume_sleep(const struct kvmm *k, s64 ns)
{
	struct pollfd p = { .fd = k->asked ? k->sock : -1, .events = POLLIN };
	const s64 most = k->asked ? LK_LOOK_NS : LK_RETRY_NS;

	(void)!poll(&p, 1, (int)(min(max(ns, 0ll), most) / 1000000) + 1);
}

/*
 * Has the socket ended?  It ends before anything else shows that the daemon
 * died.
 */
static bool hung_up(const struct kvmm *k)
{
	struct pollfd p = { .fd = k->sock, .events = POLLRDHUP };
	int n;

	do {
		n = poll(&p, 1, 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 || (n && (p.revents & ~POLLIN));
}

int kvmm_confirm(struct kvmm *k)
{
	if (k->ended || (!k->away && !hung_up(k)))
		return k->ended;
	while (!lk_look_socket(k) && k->away)
		lk_resume_sleep(k, LK_RETRY_NS);
	return k->ended;
}

u32 kvmm_resumed(const struct kvmm *k, u32 *salvaged)
{
	if (salvaged)
		*salvaged = k->nr_salvaged;
	return k->nr_resumed;
}
