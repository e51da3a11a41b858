// SPDX-License-Identifier: Apache-2.0
/*
 * attach.c - the handshake
 *
 * One request goes out on a Unix seqpacket socket, and one answer comes back.
 * A successful answer carries segment C, segment D and the doorbell.  The
 * socket then stays open: each side learns from its end that the other side has
 * died.
 *
 * No field of the answer is used before geometry.c has checked it.  Every error
 * is reported in one line that names the cause and the remedy, and a failed
 * attempt leaves nothing behind.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/libkvmm/internal.h"

#define DEFAULT_SEQS	256
#define DEFAULT_STEPS	2
#define SQ_ENTRIES	256

/* ------------------------------------------------------------------ */
/* The handshake                                                       */

static int fill_request(struct kvmm_attach_req *req,
			const struct kvmm_params *p, char *text)
{
	size_t len = p->domain ? strlen(p->domain) : 0;
	int i;

	if (!len || len >= sizeof(req->domain))
		return lk_fail(text, -EINVAL,
			       "the name of a domain has 1 to %d bytes",
			       KVMM_NAME_LEN - 1);
	if (p->nr_groups > KVMM_MAX_GROUPS)
		return lk_fail(text, -EINVAL,
			       "domain %s has %u layer groups: give at most %d",
			       p->domain, p->nr_groups, KVMM_MAX_GROUPS);
	if (!p->identity)
		return lk_fail(text, -EINVAL,
			       "domain %s needs the identity of its model",
			       p->domain);
	memset(req, 0, sizeof(*req));
	req->magic = KVMM_ATTACH_MAGIC;
	req->abi_version = KVMM_ABI_VERSION;
	req->layout_hash = KVMM_LAYOUT_HASH;
	req->features = KVMM_FEAT_RESUME;
	memcpy(req->domain, p->domain, len);
	memcpy(req->identity, p->identity, sizeof(req->identity));
	req->block_tokens = p->block_tokens;
	req->nr_shards = p->nr_shards ? p->nr_shards : 1;
	req->nr_groups = p->nr_groups ? p->nr_groups : 1;
	req->max_steps = p->max_steps ? p->max_steps : DEFAULT_STEPS;
	req->sq_entries = SQ_ENTRIES;
	req->max_seqs = p->max_seqs ? p->max_seqs : DEFAULT_SEQS;
	memcpy(req->group, p->group, req->nr_groups * sizeof(*req->group));
	req->step_tokens = p->step_tokens;
	for (i = 0; i < KVMM_MAX_TIERS; i++) {
		req->limits[i].high = KVMM_LIMIT_MAX;
		req->limits[i].max = KVMM_LIMIT_MAX;
	}
	req->limits[0].min = p->min_bytes;
	req->limits[0].low = p->low_bytes;
	if (p->high_bytes)
		req->limits[0].high = p->high_bytes;
	req->limits[0].max = p->max_bytes;
	for (i = 1; i < KVMM_MAX_TIERS && p->swap_max_bytes; i++)
		req->limits[i].max = p->swap_max_bytes;
	req->pool = p->pool;
	req->shard = p->shard;
	req->leader = p->leader;
	req->weight = p->weight ? p->weight : 100;
	return 0;
}

/*
 * Wait for the answer and receive it.  Return: its bytes, or a negative errno.
 */
int lk_receive_reply(int sock, const char *path, u32 timeout_ms,
		     struct kvmm_attach_rep *rep, int *fds, int *nr_fds,
		     char *text)
{
	union {
		struct cmsghdr	head;
		char		room[CMSG_SPACE(KVMM_MAP_BATCH * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = rep, .iov_len = sizeof(*rep) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct pollfd pfd = { .fd = sock, .events = POLLIN };
	struct cmsghdr *c;
	ssize_t n;
	int ret;

	do {
		ret = poll(&pfd, 1, (int)timeout_ms);
	} while (ret < 0 && errno == EINTR);
	if (!ret)
		return lk_fail(text, -ETIMEDOUT,
			       "the daemon at %s does not answer: see whether it is stopped, or restart it",
			       path);
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	*nr_fds = 0;
	for (c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		*nr_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), *nr_fds * sizeof(int));
	}
	if (n <= 0)
		return lk_fail(text, n ? -errno : -ECONNRESET,
			       "the daemon at %s hung up without an answer: see its log",
			       path);
	if (msg.msg_flags & MSG_CTRUNC)
		return lk_fail(text, -EMFILE,
			       "descriptors of kvmm were lost: raise the limit of open files (ulimit -n)");
	return (int)n;
}

/* Is it an answer of our ABI, and a success? */
int lk_judge_reply(const char *path, struct kvmm_attach_rep *rep, int bytes,
		   int nr_fds, char *text)
{
	int err;

	if (bytes < (int)offsetof(struct kvmm_attach_rep, layout_hash) ||
	    rep->magic != KVMM_REPLY_MAGIC)
		return lk_fail(text, -EPROTO,
			       "the program at %s is not kvmm: name the right one with --socket or in KVMM_SOCKET",
			       path);
	if (rep->abi_version != KVMM_ABI_VERSION)
		return lk_fail(text, -EPROTONOSUPPORT,
			       "the daemon at %s speaks ABI %u, this program %u: install both from one release",
			       path, rep->abi_version, KVMM_ABI_VERSION);
	if (bytes != sizeof(*rep))
		return lk_fail(text, -EPROTO,
			       "the answer of the daemon at %s has %d bytes, not %zu: install both from one build",
			       path, bytes, sizeof(*rep));
	rep->text[sizeof(rep->text) - 1] = '\0';
	if (rep->status) {
		err = rep->status < 0 && rep->status > -4096 ? rep->status :
		      -EPROTO;
		return lk_fail(text, err, "%s", rep->text[0] ? rep->text :
			       strerror(-err));
	}
	if (rep->layout_hash != KVMM_LAYOUT_HASH)
		return lk_fail(text, -EPROTONOSUPPORT,
			       "the daemon at %s was built from another kvmm.h: build both from one tree",
			       path);
	if (nr_fds != LK_NR_FDS)
		return lk_fail(text, -EPROTO,
			       "the daemon at %s sent %d descriptors, not %d", path,
			       nr_fds, LK_NR_FDS);
	return 0;
}

/* Map both segments. */
int lk_map_segments(struct kvmm *k, const int *fds, char *text)
{
	const struct kvmm_attach_rep *r = &k->info;
	struct stat c, d;
	void *p;
	int ret;

	if (fstat(fds[0], &c) || fstat(fds[1], &d))
		return lk_fail(text, -errno, "cannot look at the segments: %s",
			       strerror(errno));
	ret = lk_check_reply(k, (u64)c.st_size, (u64)d.st_size, text);
	if (ret)
		return ret;
	p = mmap(NULL, r->c_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0],
		 0);
	if (p == MAP_FAILED)
		return lk_fail(text, -errno, "cannot map segment C: %s",
			       strerror(errno));
	k->seg_c = p;
	madvise(p, r->c_bytes, MADV_DONTFORK);
	p = mmap(NULL, r->d_bytes, PROT_READ, MAP_SHARED, fds[1], 0);
	if (p == MAP_FAILED)
		return lk_fail(text, -errno, "cannot map segment D: %s",
			       strerror(errno));
	k->seg_d = p;
	madvise(p, r->d_bytes, MADV_DONTFORK);
	return 0;
}

/* Set up both ends of the rings; @first: index of their first entries. */
void lk_place_pointers(struct kvmm *k, u32 first)
{
	const struct kvmm_attach_rep *r = &k->info;
	const char *d = k->seg_d;
	char *c = k->seg_c;

	k->ctl = k->seg_c;
	k->dctl = k->seg_d;
	k->sqe = (struct kvmm_sqe *)(c + r->sq_off);
	k->arg = c + r->arg_off;
	k->cqe = (const struct kvmm_cqe *)(d + r->cq_off);
	k->result = d + r->result_off;
	k->event = (const struct kvmm_event *)(d + r->event_off);
	k->seq = (const struct kvmm_seq_status *)(d + r->seq_off);
	k->ext_status = (const struct kvmm_extent_status *)(d + r->extent_off);
	k->table = (const struct kvmm_table_page *)(d + r->table_off);
	ring_prod_init(&k->sub, r->sq_entries, first, &k->ctl->sq_tail,
		       &k->dctl->sq_head);
	ring_cons_init(&k->cons, r->cq_entries, first, &k->ctl->cq_head,
		       &k->dctl->cq_tail);
	k->first = first;
	k->look_ns = LK_LOOK_NS;
	k->maps_due = true;
}

static int build(struct kvmm *k, const int *fds, char *text)
{
	int ret = lk_map_segments(k, fds, text);

	if (ret)
		return ret;
	lk_place_pointers(k, 0);
	k->req = calloc(k->info.cq_entries, sizeof(*k->req));
	k->extent = calloc(k->info.nr_extents, sizeof(*k->extent));
	if (!k->req || !k->extent)
		return lk_fail(text, -ENOMEM, "no memory for the attachment");
	ret = lk_pool_reserve(k, text);
	if (ret)
		return ret;
	k->bell = fds[2];
	k->looked = lk_now();
	return 0;
}

/* Send the request and handle the answer, on the socket of @k. */
static int shake_hands(struct kvmm *k, const struct kvmm_attach_req *req,
		       const char *path, u32 timeout_ms, char *text)
{
	int fds[KVMM_MAP_BATCH], nr_fds = 0, ret, i;

	if (send(k->sock, req, sizeof(*req), MSG_NOSIGNAL) != sizeof(*req) &&
	    errno != EPIPE)
		return lk_fail(text, -errno, "cannot write to %s: %s", path,
			       strerror(errno));
	/* After EPIPE an answer with the reason may still be there. */
	ret = lk_receive_reply(k->sock, path, timeout_ms, &k->info, fds, &nr_fds,
			    text);
	if (ret >= 0)
		ret = lk_judge_reply(path, &k->info, ret, nr_fds, text);
	if (!ret)
		ret = build(k, fds, text);
	/* The mappings keep the segments; the doorbell stays open. */
	for (i = 0; i < nr_fds; i++) {
		if (fds[i] != k->bell)
			close(fds[i]);
	}
	return ret;
}

int kvmm_attach(const struct kvmm_params *p, struct kvmm **out, char *text)
{
	u32 timeout_ms = p->attach_timeout_ms ? p->attach_timeout_ms :
			 LK_ATTACH_MS;
	struct kvmm_attach_req req;
	char path[512];
	struct kvmm *k;
	int ret;
	u32 g;

	*out = NULL;
	text[0] = '\0';
	ret = fill_request(&req, p, text);
	if (ret)
		return ret;
	ret = lk_socket_path(p->socket, path, sizeof(path), text);
	if (ret)
		return ret;

	k = calloc(1, sizeof(*k));
	if (!k)
		return lk_fail(text, -ENOMEM, "no memory for the attachment");
	k->bell = -1;
	memcpy(k->path, path, sizeof(k->path));
	k->spin = p->spin;
	k->hit_tokens = lk_hit_tokens(&req);
	k->nr_groups = req.nr_groups;
	for (g = 0; g < k->nr_groups; g++)
		k->layers[g] = req.group[g].kind == KVMM_GROUP_STATE ? 1 :
			       req.group[g].layers;
	k->sock = lk_connect(path, timeout_ms, text);
	ret = k->sock < 0 ? k->sock :
	      shake_hands(k, &req, path, timeout_ms, text);
	if (ret) {
		lk_destroy(k);
		return ret;
	}
	lk_spare_take(k);
	*out = k;
	return 0;
}

/* Ask on a connection without attaching. */
static int ask(int sock, const char *path, struct kvmm_attach_rep *rep,
	       char *text)
{
	const struct kvmm_attach_req req = {
		.magic = KVMM_ATTACH_MAGIC, .abi_version = KVMM_ABI_VERSION,
		.flags = KVMM_ATTACH_ASK, .layout_hash = KVMM_LAYOUT_HASH,
	};
	int fds[KVMM_MAP_BATCH], nr_fds = 0, ret;

	if (send(sock, &req, sizeof(req), MSG_NOSIGNAL) != sizeof(req) &&
	    errno != EPIPE)
		return lk_fail(text, -errno, "cannot write to %s: %s", path,
			       strerror(errno));
	ret = lk_receive_reply(sock, path, LK_ASK_MS, rep, fds, &nr_fds, text);
	while (nr_fds > 0)
		close(fds[--nr_fds]);
	if (ret >= 0)
		ret = lk_judge_reply(path, rep, ret, 0, text);
	if (!ret)
		return lk_fail(text, -EPROTO,
			       "the daemon at %s attached a client that only asked", path);
	return ret == -ECANCELED ? 0 : ret;
}

int kvmm_ask(const char *socket, u32 *memory, u32 *device, char *text)
{
	struct kvmm_attach_rep rep;
	char path[512];
	int sock, ret;

	text[0] = '\0';
	ret = lk_socket_path(socket, path, sizeof(path), text);
	if (ret)
		return ret;
	sock = lk_connect(path, LK_ASK_MS, text);
	if (sock < 0)
		return sock;
	ret = ask(sock, path, &rep, text);
	close(sock);
	if (ret)
		return ret;
	*memory = rep.memory;
	*device = rep.device;
	return 0;
}

bool kvmm_draining(const struct kvmm *k)
{
	return k->dctl && READ_ONCE(k->dctl->draining);
}

const struct kvmm_attach_rep *kvmm_info(const struct kvmm *k)
{
	return &k->info;
}

u32 kvmm_nr_groups(const struct kvmm *k)
{
	return k->nr_groups;
}

void *kvmm_pool(const struct kvmm *k)
{
	return k->pool;
}

void *kvmm_block(const struct kvmm *k, u32 entry, u32 shard)
{
	u64 off = (u64)entry * k->info.unit;

	if (entry == KVMM_NO_INDEX || shard >= k->info.nr_shards)
		return NULL;
	off += k->info.shard_off[shard];
	return off < k->info.pool_bytes ? k->pool + off : NULL;
}

u32 kvmm_backend(const struct kvmm *k)
{
	return k->info.memory;
}
