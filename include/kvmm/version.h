/* SPDX-License-Identifier: Apache-2.0 */
/* version.h - one version for all programs of the tree */
#ifndef KVMM_VERSION_H
#define KVMM_VERSION_H

#define KVMM_VERSION	"0.1.0"

#endif /* KVMM_VERSION_H */
