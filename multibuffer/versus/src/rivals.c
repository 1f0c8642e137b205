/* OpenSSL's EVP and Intel's multi-buffer library behind one interface.
 *
 * A packet is one buffer: 8 bytes of associated data, the IV, the text, the ICV. Everything is in place, and contexts and
 * expanded keys are made beforehand: the libraries are asked for nothing but their kernels. */
#include <intel-ipsec-mb.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <stdlib.h>
#include <string.h>

#define AAD 8

struct suite {
  const char *cipher; /* as OpenSSL calls it, or NULL */
  const char *mac;    /* "HMAC", "CMAC" or NULL */
  const char *digest; /* of the HMAC, cipher of the CMAC */
  uint8_t key[64];
  size_t key_len; /* without salt */
  uint8_t salt[4];
  size_t salt_len;
  uint8_t mac_key[64];
  size_t mac_key_len;
  size_t iv_len; /* in the packet */
  size_t icv_len;
  int aead, counter;
};

struct evp {
  struct suite suite;
  EVP_CIPHER_CTX *seal, *open;
  EVP_MAC_CTX *mac;
  int ccm;
};

void evp_prepare(void) {
  OSSL_PROVIDER_load(NULL, "default");
  OSSL_PROVIDER_load(NULL, "legacy");
}

static EVP_CIPHER_CTX *cipher_ctx(const struct suite *s, int seal, int ccm) {
  EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, s->cipher, NULL);
  if (!cipher) return NULL;
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  int ok = EVP_CipherInit_ex(ctx, cipher, NULL, NULL, NULL, seal);
  if (EVP_CIPHER_CTX_get_key_length(ctx) != (int)s->key_len) ok &= EVP_CIPHER_CTX_set_key_length(ctx, s->key_len);
  if (ccm) {
    ok &= EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_IVLEN, 11, NULL);
    ok &= EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, s->icv_len, NULL);
  }
  ok &= EVP_CipherInit_ex(ctx, NULL, NULL, s->key, NULL, seal);
  if (!s->aead) EVP_CIPHER_CTX_set_padding(ctx, 0);
  EVP_CIPHER_free(cipher);
  if (ok == 1) return ctx;
  EVP_CIPHER_CTX_free(ctx);
  return NULL;
}

struct evp *evp_new(const struct suite *s) {
  struct evp *e = calloc(1, sizeof *e);
  e->suite = *s;
  if (s->cipher) {
    e->ccm = strstr(s->cipher, "CCM") != NULL;
    e->seal = cipher_ctx(s, 1, e->ccm);
    e->open = cipher_ctx(s, 0, e->ccm);
    if (!e->seal || !e->open) return NULL;
  }
  if (s->mac) {
    EVP_MAC *mac = EVP_MAC_fetch(NULL, s->mac, NULL);
    if (!mac) return NULL;
    e->mac = EVP_MAC_CTX_new(mac);
    const char *what = strcmp(s->mac, "HMAC") ? OSSL_MAC_PARAM_CIPHER : OSSL_MAC_PARAM_DIGEST;
    OSSL_PARAM params[2] = {OSSL_PARAM_construct_utf8_string(what, (char *)s->digest, 0), OSSL_PARAM_construct_end()};
    if (!EVP_MAC_init(e->mac, s->mac_key, s->mac_key_len, params)) return NULL;
  }
  return e;
}

static void nonce_of(const struct suite *s, const uint8_t *packet, uint8_t nonce[16]) {
  memset(nonce, 0, 16);
  memcpy(nonce, s->salt, s->salt_len);
  memcpy(nonce + s->salt_len, packet + AAD, s->iv_len);
  if (s->counter) nonce[15] = 1;
}

static int evp_aead(struct evp *e, uint8_t *p, size_t len, int seal) {
  const struct suite *s = &e->suite;
  EVP_CIPHER_CTX *ctx = seal ? e->seal : e->open;
  uint8_t nonce[16], *text = p + AAD + s->iv_len, *icv = text + len;
  int n, ok = 1;
  nonce_of(s, p, nonce);
  if (!seal) ok &= EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, s->icv_len, icv);
  ok &= EVP_CipherInit_ex(ctx, NULL, NULL, NULL, nonce, seal);
  if (e->ccm) ok &= EVP_CipherUpdate(ctx, NULL, &n, NULL, len);
  ok &= EVP_CipherUpdate(ctx, NULL, &n, p, AAD);
  if (EVP_CipherUpdate(ctx, text, &n, text, len) != 1) return 0;
  if (!e->ccm || seal) ok &= EVP_CipherFinal_ex(ctx, text + len, &n);
  if (seal) ok &= EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, s->icv_len, icv);
  return ok == 1;
}

static int evp_cipher(struct evp *e, uint8_t *p, size_t len, int seal) {
  EVP_CIPHER_CTX *ctx = seal ? e->seal : e->open;
  uint8_t nonce[16], *text = p + AAD + e->suite.iv_len;
  int n;
  if (!e->suite.cipher) return 1;
  nonce_of(&e->suite, p, nonce);
  return EVP_CipherInit_ex(ctx, NULL, NULL, NULL, nonce, seal) && EVP_CipherUpdate(ctx, text, &n, text, len);
}

static int evp_mac(struct evp *e, uint8_t *p, size_t len, uint8_t out[64]) {
  size_t n;
  return EVP_MAC_init(e->mac, NULL, 0, NULL) && EVP_MAC_update(e->mac, p, AAD + e->suite.iv_len + len) &&
         EVP_MAC_final(e->mac, out, &n, 64);
}

int evp_run(struct evp *e, uint8_t **packets, size_t n, size_t len, int seal) {
  const struct suite *s = &e->suite;
  uint8_t mac[64];
  for (size_t i = 0; i < n; i++) {
    uint8_t *p = packets[i], *icv = p + AAD + s->iv_len + len;
    if (s->aead) {
      if (!evp_aead(e, p, len, seal)) return 0;
      continue;
    }
    if (seal && !evp_cipher(e, p, len, 1)) return 0;
    if (s->mac && !evp_mac(e, p, len, mac)) return 0;
    if (seal) memcpy(icv, mac, s->icv_len);
    else if (CRYPTO_memcmp(icv, mac, s->icv_len) || !evp_cipher(e, p, len, 0)) return 0;
  }
  return 1;
}

struct imb {
  struct suite suite;
  IMB_MGR *mgr;
  IMB_CIPHER_MODE cipher;
  IMB_HASH_ALG hash;
  int hash_whole; /* the hash covers header and IV too */
  DECLARE_ALIGNED(uint32_t enc[60], 64);
  DECLARE_ALIGNED(uint32_t dec[60], 64);
  DECLARE_ALIGNED(struct gcm_key_data gcm, 64);
  DECLARE_ALIGNED(uint64_t des[3][16], 64);
  const void *des3[3];
  DECLARE_ALIGNED(uint8_t ipad[64], 64);
  DECLARE_ALIGNED(uint8_t opad[64], 64);
  DECLARE_ALIGNED(uint32_t k1[60], 64);
  DECLARE_ALIGNED(uint8_t k2[16], 16);
  DECLARE_ALIGNED(uint8_t k3[16], 16);
  uint8_t iv[256][16], tag[256][64];
};

static int imb_hmac(struct imb *m, hash_one_block_t one, size_t block) {
  uint8_t pad[128];
  for (int outer = 0; outer < 2; outer++) {
    memset(pad, outer ? 0x5c : 0x36, block);
    for (size_t i = 0; i < m->suite.mac_key_len; i++) pad[i] ^= m->suite.mac_key[i];
    one(pad, outer ? m->opad : m->ipad);
  }
  return 1;
}

static int imb_keys(struct imb *m) {
  const struct suite *s = &m->suite;
  IMB_MGR *g = m->mgr;
  if (m->cipher == IMB_CIPHER_GCM || m->hash == IMB_AUTH_AES_GMAC_128) {
    if (s->key_len == 16) IMB_AES128_GCM_PRE(g, s->key, &m->gcm);
    if (s->key_len == 24) IMB_AES192_GCM_PRE(g, s->key, &m->gcm);
    if (s->key_len == 32) IMB_AES256_GCM_PRE(g, s->key, &m->gcm);
  } else if (m->cipher == IMB_CIPHER_DES || m->cipher == IMB_CIPHER_DES3) {
    for (size_t k = 0; k < s->key_len / 8; k++) {
      IMB_DES_KEYSCHED(g, m->des[k], s->key + 8 * k);
      m->des3[k] = m->des[k];
    }
  } else if (m->cipher != IMB_CIPHER_NULL && m->cipher != IMB_CIPHER_CHACHA20_POLY1305) {
    if (s->key_len == 16) IMB_AES_KEYEXP_128(g, s->key, m->enc, m->dec);
    if (s->key_len == 24) IMB_AES_KEYEXP_192(g, s->key, m->enc, m->dec);
    if (s->key_len == 32) IMB_AES_KEYEXP_256(g, s->key, m->enc, m->dec);
  }
  switch (m->hash) {
    case IMB_AUTH_MD5: return imb_hmac(m, g->md5_one_block, 64);
    case IMB_AUTH_HMAC_SHA_1: return imb_hmac(m, g->sha1_one_block, 64);
    case IMB_AUTH_HMAC_SHA_256: return imb_hmac(m, g->sha256_one_block, 64);
    case IMB_AUTH_HMAC_SHA_384: return imb_hmac(m, g->sha384_one_block, 128);
    case IMB_AUTH_HMAC_SHA_512: return imb_hmac(m, g->sha512_one_block, 128);
    case IMB_AUTH_AES_XCBC: IMB_AES_XCBC_KEYEXP(g, s->mac_key, m->k1, m->k2, m->k3); return 1;
    case IMB_AUTH_AES_CMAC: {
      uint32_t dust[60];
      IMB_AES_KEYEXP_128(g, s->mac_key, m->k1, dust);
      IMB_AES_CMAC_SUBKEY_GEN_128(g, m->k1, m->k2, m->k3);
      return 1;
    }
    default: return 1;
  }
}

struct imb *imb_new(const struct suite *s, int cipher, int hash) {
  struct imb *m = aligned_alloc(64, (sizeof *m + 63) / 64 * 64);
  memset(m, 0, sizeof *m);
  m->suite = *s;
  m->cipher = cipher;
  m->hash = hash;
  m->mgr = alloc_mb_mgr(0);
  IMB_ARCH arch;
  init_mb_mgr_auto(m->mgr, &arch);
  return imb_keys(m) ? m : NULL;
}

/* The enumerations, for the other side. */
int imb_cipher(int which) {
  static const int all[] = {IMB_CIPHER_NULL, IMB_CIPHER_CBC, IMB_CIPHER_CNTR, IMB_CIPHER_GCM,
                            IMB_CIPHER_CCM, IMB_CIPHER_CHACHA20_POLY1305, IMB_CIPHER_DES, IMB_CIPHER_DES3};
  return all[which];
}

int imb_hash(int which) {
  static const int all[] = {IMB_AUTH_NULL, IMB_AUTH_MD5, IMB_AUTH_HMAC_SHA_1, IMB_AUTH_HMAC_SHA_256,
                            IMB_AUTH_HMAC_SHA_384, IMB_AUTH_HMAC_SHA_512, IMB_AUTH_AES_XCBC, IMB_AUTH_AES_CMAC,
                            IMB_AUTH_AES_GMAC, IMB_AUTH_AES_CCM, IMB_AUTH_CHACHA20_POLY1305};
  return all[which];
}

static void imb_fill(struct imb *m, IMB_JOB *j, uint8_t *p, size_t i, size_t len, int seal) {
  const struct suite *s = &m->suite;
  size_t header = AAD + s->iv_len;
  nonce_of(s, p, m->iv[i]);
  j->cipher_mode = m->cipher;
  j->hash_alg = m->hash;
  j->cipher_direction = seal ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
  int hash_first = m->cipher == IMB_CIPHER_CCM ? seal : !seal;
  j->chain_order = hash_first ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
  j->enc_keys = m->enc;
  j->dec_keys = m->dec;
  j->key_len_in_bytes = s->key_len;
  j->src = p;
  j->dst = p + header;
  j->cipher_start_src_offset_in_bytes = header;
  j->msg_len_to_cipher_in_bytes = len;
  j->hash_start_src_offset_in_bytes = s->aead ? header : 0;
  j->msg_len_to_hash_in_bytes = s->aead ? len : header + len;
  j->iv = m->iv[i];
  j->iv_len_in_bytes = s->counter ? 16 : s->aead ? 12 : s->iv_len;
  j->auth_tag_output = seal ? p + header + len : m->tag[i];
  j->auth_tag_output_len_in_bytes = s->icv_len;
  j->user_data = (void *)(uintptr_t)i;
  if (m->cipher == IMB_CIPHER_GCM) {
    j->enc_keys = j->dec_keys = &m->gcm;
    j->u.GCM.aad = p;
    j->u.GCM.aad_len_in_bytes = AAD;
  } else if (m->cipher == IMB_CIPHER_CHACHA20_POLY1305) {
    j->enc_keys = j->dec_keys = s->key;
    j->u.CHACHA20_POLY1305.aad = p;
    j->u.CHACHA20_POLY1305.aad_len_in_bytes = AAD;
  } else if (m->cipher == IMB_CIPHER_CCM) {
    j->dec_keys = m->enc;
    j->iv_len_in_bytes = 11;
    j->u.CCM.aad = p;
    j->u.CCM.aad_len_in_bytes = AAD;
  } else if (m->cipher == IMB_CIPHER_DES) {
    j->enc_keys = j->dec_keys = m->des[0];
  } else if (m->cipher == IMB_CIPHER_DES3) {
    j->enc_keys = j->dec_keys = m->des3;
  }
  if (m->hash == IMB_AUTH_AES_XCBC) {
    j->u.XCBC._k1_expanded = m->k1;
    j->u.XCBC._k2 = m->k2;
    j->u.XCBC._k3 = m->k3;
  } else if (m->hash == IMB_AUTH_AES_CMAC) {
    j->u.CMAC._key_expanded = m->k1;
    j->u.CMAC._skey1 = m->k2;
    j->u.CMAC._skey2 = m->k3;
  } else if (!s->aead && m->hash != IMB_AUTH_NULL) {
    j->u.HMAC._hashed_auth_key_xor_ipad = m->ipad;
    j->u.HMAC._hashed_auth_key_xor_opad = m->opad;
  }
}

int imb_run(struct imb *m, uint8_t **packets, size_t n, size_t len, int seal) {
  IMB_MGR *g = m->mgr;
  size_t done = 0, header = AAD + m->suite.iv_len;
  IMB_JOB *j;
  for (size_t i = 0; i < n; i++) {
    j = IMB_GET_NEXT_JOB(g);
    imb_fill(m, j, packets[i], i, len, seal);
    for (j = IMB_SUBMIT_JOB_NOCHECK(g); j; j = IMB_GET_COMPLETED_JOB(g)) done += j->status == IMB_STATUS_COMPLETED;
  }
  while ((j = IMB_FLUSH_JOB(g))) done += j->status == IMB_STATUS_COMPLETED;
  if (done != n) return 0;
  if (seal || !m->suite.icv_len) return 1;
  for (size_t i = 0; i < n; i++)
    if (CRYPTO_memcmp(m->tag[i], packets[i] + header + len, m->suite.icv_len)) return 0;
  return 1;
}
