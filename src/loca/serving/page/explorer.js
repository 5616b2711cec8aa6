(()=>{var k,Je,jt,W,ke,he,Ke,ue,Ye,Ce,Se,Xt,se=Symbol.for("pv"),fe={},pe=[],Jt=/^m(i|n|o|s|text|space)$/,Ae=Array.isArray,Me=pe.slice,j=Object.assign;function V(t){t&&t.parentNode&&t.remove()}function Ze(t,e,n){var s,r,o,a={},i=arguments.length;for(o in e)o=="key"?s=e[o]:o=="ref"&&typeof t!="function"?r=e[o]:a[o]=e[o];return i>2&&(a.children=i>3?Me.call(arguments,2):n),ne(t,a,s,r,null)}function ne(t,e,n,s,r){var o={type:t,props:e,key:n,ref:s,__k:null,__:null,__b:0,__e:null,__c:null,constructor:se,__v:r||++Je,__i:-1,__u:0};return!r&&k.vnode&&k.vnode(o),o}function de(t){return t.children}function me(t,e){this.props=t,this.context=e,this.__g=0}function q(t,e){if(e==null)return t.__&&q(t.__,t.__i+1);for(var n;e<t.__k.length;e++)if((n=t.__k[e])&&n.__e)return n.__e;return typeof t.type!="function"||t.props.__P?null:q(t)}function Kt(t){var e,n=t.__v,s=n.__e,r=[],o=[],a=t.__P;a&&((e=j({constructor:se},n)).__v=n.__v+1,k.vnode&&k.vnode(e),Te(a,e,n,t.__n,a.namespaceURI,32&n.__u?[s]:null,r,s||q(n),32&n.__u,o),e.__v=n.__v,e.__.__k[e.__i]=e,ot(r,e,o),n.__=n.__e=null,e.__e!=s&&Qe(e))}function Qe(t){if((t=t.__)&&t.__c&&!t.props.__P)return t.__e=null,t.__k.some(function(e){return e&&(t.__e=e.__e)}),Qe(t)}function je(t){(8&t.__g||(t.__g|=8,W.push(t),he++))&&ke==k.debounceRendering||((ke=k.debounceRendering)||queueMicrotask)(et)}function et(){try{for(var t,e=1;W.length;)W.length>e&&W.sort(Ke),t=W.shift(),e=W.length,8&t.__g&&Kt(t)}finally{(he=W.length)&&(ke||queueMicrotask)(et)}}function tt(t,e,n,s,r,o,a,i,c,h,l){var d,f,u,_,p,$,g=s.__k||pe,y=e.length;for(c=Yt(n,e,g,c,y),d=0;d<y;d++)(u=n.__k[d])!=null&&(f=~u.__i&&g[u.__i]||fe,u.__i=d,$=Te(t,u,f,r,o,a,i,c,h,l),_=u.__e,(f.ref!=u.ref||8&f.__u)&&(f.ref&&Ee(f.ref,null,u,f),u.ref&&l.push(u.ref,u.__c||_,u)),p=p||_,4&u.__u?(c=nt(u,c,t,!f.__v),f.__e&&(f.__e=null)):typeof u.type=="function"&&$!==void 0?c=$:_&&(c=_.nextSibling),u.__u&=-21);return n.__e=p,c}function Yt(t,e,n,s,r){var o,a,i,c,h,l,d,f,u,_=n.length,p=_,$=0,g=0,y=t.__k=Array(r);for(o=0;o<r;o++)(a=e[o])!=null&&typeof a!="boolean"&&typeof a!="function"?(typeof a!="object"||a.constructor===String?a=y[o]=ne(null,a):Ae(a)?a=y[o]=ne(de,{children:a}):a.constructor===se&&a.__b?a=y[o]=ne(a.type,a.props,a.key,a.ref,a.__v):y[o]=a,c=o+$,a.__=t,a.__b=t.__b+1,i=null,~(h=a.__i=Zt(a,n,c,p))&&(p--,(i=n[h])&&(i.__u|=2)),i&&i.__v?(a.__u|=16,h==c-1?$--:h==c+1?$++:h!=c&&(h>c?$--:$++,g=1)):(~h||(r>_?$--:r<_&&$++),typeof a.type!="function"&&(a.__u|=4))):y[o]=null;if(g){for(l=[],d=[],o=0;o<r;o++)if((a=y[o])&&16&a.__u){for($=0,f=l.length;$<f;)l[u=$+f>>1]<a.__i?$=u+1:f=u;l[$]=a.__i,d[o]=$+1}for($=l.length;o--;)d[o]&&(d[o]==$?$--:y[o].__u|=4)}if(p)for(o=0;o<_;o++)!(i=n[o])||2&i.__u||(i.__e==s&&(s=q(i)),Re(i,i));return s}function nt(t,e,n,s){var r,o,a,i;if(typeof t.type=="function"){if(t.props.__P)return e;if(r=t.__k)for(o=0;o<r.length;o++)r[o]&&(r[o].__=t,e=nt(r[o],e,n,!1));return e}for(e&&!e.parentNode&&(e=q(t))&&!e.parentNode&&(e=null),a=t.__e,i=e;i&&i.nodeType==8;)i=i.nextSibling;for(a!=i&&(!s&&n.moveBefore&&a.parentNode?n.moveBefore(a,e):n.insertBefore(a,e||null)),e=a;(e=e&&e.nextSibling)&&e.nodeType==8&&!e.data.startsWith("$s"););return e}function Zt(t,e,n,s){var r,o=t.key,a=t.type,i=e[n],c=i&&!(2&i.__u);if(i===null&&o==null||c&&o==i.key&&a==i.type)return n;if(s>(c?1:0)){for(r=n-1;r>=0;r--)if((i=e[r])&&!(2&i.__u)&&o==i.key&&a==i.type)return r;for(r=n+1;r<e.length;r++)if((i=e[r])&&!(2&i.__u)&&o==i.key&&a==i.type)return r}return-1}function Xe(t,e,n){n==null&&(n=""),e[0]=="-"?t.setProperty(e,n):t[e]=n}function le(t,e,n,s,r){var o,a;if(e=="style")if(typeof n=="string")t.style.cssText=n;else{if(typeof s=="string"&&(t.style.cssText=s=""),s)for(e in s)n&&e in n||Xe(t.style,e);if(n)for(e in n)s&&n[e]==s[e]||Xe(t.style,e,n[e])}else if(e[0]=="o"&&e[1]=="n")typeof n!="function"&&(n=null),typeof s!="function"&&(s=null),(t.__e||(t.__e={}))[e]=n,n&&s||(a=Se[e]||(Se[e]=Qt(e)),(t.__a||(t.__a={}))[e]=Ce,o=e!=(e=e.replace(Ye,"$1")),(e=e.slice(2))[0]<"a"&&(e=e.toLowerCase()),n?t.addEventListener(e,a,o):t.removeEventListener(e,a,o));else{if(r=="http://www.w3.org/2000/svg")e=e.replace(/xlink(H|:h)/,"h").replace(/sName$/,"s");else if(e!="width"&&e!="height"&&e!="href"&&e!="list"&&e!="form"&&e!="tabIndex"&&e!="download"&&e!="rowSpan"&&e!="colSpan"&&e!="role"&&e!="popover"&&e in t)try{return void(t[e]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&e[4]!="-"?t.removeAttribute(e):t.setAttribute(e,e=="popover"&&n==1?"":n)}}function Qt(t){return function(e){var n=this.__e;if(n){if(n=n[t],e[ue]==null)e[ue]=Ce++;else if(e[ue]<this.__a[t])return;return n(k.event?k.event(e):e)}}}function Te(t,e,n,s,r,o,a,i,c,h){var l,d,f,u,_,p,$,g,y,S,v,w,b,C,x,Z,L,D,R=e.type;if(e.constructor!==se)return null;128&n.__u&&(c=32&n.__u,l=n.__c.__z)&&(e.__u|=c,d=o=[],l.nodeType==8?i=_e(l,o):o.push(l),i=o[0]||i),(l=k.__b)&&l(e);e:if(typeof R=="function"){f=a.length;try{if(g=e.props,y=(l=R.prototype)&&l.render,S=(l=R.contextType)&&s[l.__c],v=l?S?S.props.value:l.__:s,(u=n.__c)?(e.__c=u,2&u.__g&&(u.__g|=1)):(y?e.__c=u=new R(g,v):(e.__c=u=new me(g,v),u.constructor=R,u.render=tn),S&&S.sub(u),u.state||(u.state={}),u.__n=s,u.__g|=8,u.__h=[],u.__k=[]),y&&(u.__s||(u.__s=u.state),R.getDerivedStateFromProps&&(u.__s==u.state&&(u.__s=j({},u.__s)),j(u.__s,R.getDerivedStateFromProps(g,u.__s)))),_=u.props,p=u.state,u.__v=e,n.__c){if(g!==_&&y&&!R.getDerivedStateFromProps&&u.componentWillReceiveProps&&u.componentWillReceiveProps(g,v),e.__v==n.__v&&!(8&u.__g)||!(4&u.__g)&&u.shouldComponentUpdate&&u.shouldComponentUpdate(g,u.__s,v)===!1){e.__v!=n.__v&&(u.props=g,u.state=u.__s,u.__g&=-9),e.__e=n.__e,e.__k=n.__k,e.__k.some(function(N){N&&(N.__=e)}),pe.push.apply(u.__h,u.__k),u.__k=[],u.__h.length&&a.push(u),i=q(n);break e}u.componentWillUpdate&&u.componentWillUpdate(g,u.__s,v),y&&u.componentDidUpdate&&u.__h.push(function(){u.componentDidUpdate(_,p,$)})}else y&&!R.getDerivedStateFromProps&&u.componentWillMount&&u.componentWillMount(),y&&u.componentDidMount&&u.__h.push(u.componentDidMount);u.context=v,u.props=g,u.__P=t,u.__g&=-5,w=k.__r,b=y?25:0;do u.__g&=-9,w&&w(e),l=u.render(u.props,u.state=u.__s,u.context);while(8&u.__g&&++b<25);y&&(pe.push.apply(u.__h,u.__k),u.__k=[]),u.state=u.__s,u.getChildContext&&(s=j({},s,u.getChildContext())),y&&n.__c&&u.getSnapshotBeforeUpdate&&($=u.getSnapshotBeforeUpdate(_,p)),C=l&&l.type===de&&l.key==null?l.props.children:l,g.__P&&(l=i,r=(t=g.__P).namespaceURI,c=o=null,n.props&&n.props.__P!=t&&(n.__k.some(function(N){N&&Re(N,N)}),n.__k=null),i=n.__k?q(n,0):null),i=tt(t,Ae(C)?C:[C],e,n,s,r,o,a,i,c,h),g.__P&&(e.__e=null,i=l),e.__u&=-161,d&&d.some(V),u.__h.length&&a.push(u),1&u.__g&&(u.__g&=-4)}catch(N){if(a.length=f,e.__v=null,c||o)if(N&&N.then){if(e.__u|=128|c,o){for(~(L=o.indexOf(i||void 0))||(L=o.length);(D=o[L-1])&&D.nodeType==8;)L--;for(;L<o.length;L++)if(D=o[L])if(o[L]=null,x){if(D==Z)break}else{if(D.nodeType!=8)break;D.data.startsWith("$s")&&(Z=_e(x=D))}}if(!x){for(;i&&i.nodeType==8&&i.nextSibling;)i=i.nextSibling;x=i}(l=_e(x=e.__c.__z||(e.__c.__z=x)))?(e.__e=x,i=l):e.__e=i,i=i&&i.nextSibling}else o&&o.some(V);else e.__e=n.__e;e.__k||(e.__k=n.__k||[]),N&&N.then||st(e),k.__e(N,e,n)}}else i=e.__e=en(n.__e,e,n,s,r,o,a,c,h,t);return(l=k.diffed)&&l(e),i}function _e(t,e){if(t&&t.nodeType==8&&t.data.startsWith("$s"))for(var n=1;t=t.nextSibling;){if(t.nodeType==8){if(t.data.startsWith("$s"))n++;else if(t.data.startsWith("/$s")&&!--n)return t}e&&e.push(t)}}function st(t){t&&(t.__c&&(t.__c.__g|=4),t.__k&&t.__k.some(st))}function ot(t,e,n){for(var s=0;s<n.length;)Ee(n[s++],n[s++],n[s++]);k.__c&&k.__c(e,t),t.some(function(r){try{t=r.__h,r.__h=[],t.some(function(o){o.call(r)})}catch(o){k.__e(o,r.__v)}})}function en(t,e,n,s,r,o,a,i,c,h){var l,d,f,u,_,p,$,g,y=n.props||fe,S=e.props,v=e.type;if(v=="svg"?r="http://www.w3.org/2000/svg":v=="math"?r="http://www.w3.org/1998/Math/MathML":r||(r="http://www.w3.org/1999/xhtml"),o){for(l=0;l<o.length;l++)if((_=o[l])&&(v?_.localName==v:_.nodeType==3)){t=_,o[l]=null;break}}if(!t){if(g=h.ownerDocument||document,!v)return g.createTextNode(S);t=g.createElementNS(r,v,S.is?S:h),i&&(k.__m&&k.__m(e,o),i=!1),o=null}if(v){if(h=v=="template"&&t.content||t,o=v=="textarea"&&S.defaultValue!=null?null:o&&Me.call(h.childNodes),!i&&o)for(y={},l=0;l<t.attributes.length;l++)y[(_=t.attributes[l]).name]=_.value;for(l in y)_=y[l],l=="dangerouslySetInnerHTML"?f=_:l=="children"||l in S||l=="value"&&"defaultValue"in S||l=="checked"&&"defaultChecked"in S||le(t,l,null,_,r);for(l in S)_=S[l],l=="children"?u=_:l=="dangerouslySetInnerHTML"?d=_:l=="value"?p=_:l=="checked"?$=_:i&&typeof _!="function"||y[l]===_||le(t,l,_,y[l],r);d?(i||f&&(d.__html==f.__html||d.__html==t.innerHTML)||(t.innerHTML=d.__html),e.__k=[]):(f&&(t.textContent=""),(v=="foreignObject"||r=="http://www.w3.org/1998/Math/MathML"&&Jt.test(v))&&(r="http://www.w3.org/1999/xhtml"),tt(h,Ae(u)?u:[u],e,n,s,r,o,a,o?o[0]:n.__k&&q(n,0),i,c),o&&o.some(V)),i&&v!="textarea"||(l="value",v=="progress"&&p==null?t.removeAttribute(l):p==null||p===t[l]&&(v!="progress"||p)||le(t,l,p,y[l],r),l="checked",$!=null&&$!=t[l]&&le(t,l,$,y[l],r))}else y===S||i&&t.data==S||(t.data=S);return t}function Ee(t,e,n,s){try{typeof t=="function"?e?e.__x=t(e)||1:s&&(s=s.__c||s.__e)&&(e=s.__x)&&(s.__x=null,typeof e=="function"?e():t(null)):t.current=e}catch(r){k.__e(r,n)}}function Re(t,e,n){var s,r,o,a;if(k.unmount&&k.unmount(t),!(s=t.ref)||s.current&&s.current!=t.__e||Ee(s,null,e,t),s=t.__c){if(s.componentWillUnmount)try{s.componentWillUnmount()}catch(i){k.__e(i,e)}s.__P=s.__n=null}if(s=t.__k)for(a=0;a<s.length;a++)s[a]&&Re(s[a],e,typeof t.type!="function"||n&&!t.props.__P);!n&&(s=t.__c)&&(s=s.__z)&&(r=_e(s,o=[]))&&(s==t.__e&&o.some(V),V(r),V(s)),n||V(t.__e),t.__e=t.__c=t.__=null}function tn(t,e,n){return this.constructor(t,n)}function rt(t,e){var n,s,r,o;k.__&&k.__(t,e),e.nodeType==9&&(e=e.documentElement),s=(n=t&&32&t.__u)?null:e.__k,e.__k=ne(de,{children:[t]}),r=[],o=[],Te(e,e.__k,s||fe,fe,e.namespaceURI,s?null:e.firstChild?Me.call(e.childNodes):null,r,s?s.__e:e.firstChild,n,o),ot(r,e.__k,o),e.__k.props.children=null}k={__e:function(t,e,n,s){for(var r,o,a;e=e.__;)if((r=e.__c)&&!(1&r.__g)){r.__g|=4;try{if((a=(o=r.constructor)&&o.getDerivedStateFromError)&&r.setState(o.getDerivedStateFromError(t)),r.componentDidCatch&&(r.componentDidCatch(t,s||{}),a=1),a&&8&r.__g)return void(r.__g|=2)}catch(i){t=i}}throw he=0,t}},Je=0,jt=function(t){return t!=null&&t.constructor===se},me.prototype.setState=function(t,e){var n=this.__s;n&&n!=this.state||(n=this.__s=j({},this.state)),typeof t=="function"&&(t=t(j({},n),this.props)),t&&(j(n,t),this.__v&&(e&&this.__k.push(e),je(this)))},me.prototype.forceUpdate=function(t){this.__v&&(this.__g|=4,t&&this.__h.push(t),je(this))},me.prototype.render=de,W=[],he=0,Ke=function(t,e){return t.__v.__b-e.__v.__b},ue=Symbol(),Ye=/(PointerCapture)$|Capture$/i,Ce=0,Se={},Xt=0;var X,M,Ne,it,Ie=Object.is,$e=0,pt=[],De=[],A=k,at=A.__b,ct=A.__r,lt=A.diffed,ut=A.__c,mt=A.unmount,_t=A.__;function re(t,e){A.__h&&A.__h(M,t,$e||e),$e=0;var n=M.__H||(M.__H={__:[],__h:[]});return t>=n.__.length&&n.__.push({}),n.__[t]}function T(t){return $e=1,Be(dt,t)}function Be(t,e,n){var s=re(X++,2);if(s.t=t,!s.__c&&(s.__=[n?n(e):dt(void 0,e),function(o){var a=(s.__N||s.__)[0],i=s.t(a,o);Ie(a,i)||(s.__N=[i,s.__[1]],s.__c.setState({}))}],s.__c=M,!M.__f)){M.__f=!0;var r=M.shouldComponentUpdate;M.shouldComponentUpdate=function(o,a,i){var c=this.__H;if(!c)return!0;var h=!1,l=this.props!=o;if(c.__.some(function(f){f.__N&&(h=!0,Ie(f.__[0],f.__N[0])||(l=!0))}),r){var d=r.call(this,o,a,i);return h?d||l:d}return!h||l}}return s.__}function E(t,e){var n=re(X++,3);!A.__s&&Ue(n.__H,e)&&(n.__P=!0,n.__=t,n.u=e,M.__H.__h.push(n))}function Oe(t,e){var n=re(X++,4);!A.__s&&Ue(n.__H,e)&&(n.__P=!1,n.__=t,n.u=e,M.__h.push(n))}function O(t){return $e=5,ye(function(){return{current:t}},[])}function ye(t,e){var n=re(X++,7);return Ue(n.__H,e)&&(n.__=t(),n.__H=e),n.__}function ge(){var t=re(X++,11);if(!t.__){for(var e=M.__v;!e.__m&&e.__;)e=e.__;var n=e.__m||(e.__m=[0,0]);t.__="P"+n[0]+"-"+n[1]++}return t.__}function nn(){var t;do{for(;t=De.shift();)try{oe(t)}catch(n){A.__e(n,{__:(t=t.__P)&&t.__v})}for(;t=pt.shift();){var e=t.__H;if(t.__P&&e)try{e.__h.some(oe),e.__h.some(Pe),e.__h=[]}catch(n){e.__h=[],A.__e(n,t.__v)}}}while(De.length)}A.__b=function(t){M=null,at&&at(t)},A.__=function(t,e){t&&e.__k&&e.__k.__m&&(t.__m=e.__k.__m),_t&&_t(t,e)},A.__r=function(t){ct&&ct(t),X=0;var e=(M=t.__c).__H;e&&(Ne==M?M.__h=[]:(e.__h.some(oe),e.__h.some(Pe),X=0),e.__h=[],e.__.some(function(n){n.__N&&(n.__=n.__N),n.u=n.__N=void 0})),Ne=M},A.diffed=function(t){lt&&lt(t);var e=t.__c;e&&e.__H&&(e.__H.__h.length&&ft(pt.push(e)),e.__H.__.some(function(n){n.u&&(n.__H=n.u)})),Ne=M=null},A.__c=function(t,e){e.some(function(n){try{n.__h.some(oe),n.__h=n.__h.filter(function(s){return!s.__||Pe(s)})}catch(s){n.__h=[function(){throw s}]}}),ut&&ut(t,e)},A.unmount=function(t){mt&&mt(t);var e,n,s=t.__c;s&&s.__H&&(s.__H.__.some(function(r){try{if(r.__P&&r.__c){if(n===void 0){for(n=t.__;n&&(!n.__c||!n.__c.__P);)n=n.__;n=n&&n.__c}r.__P=n,ft(De.push(r))}else oe(r)}catch(o){e=o}}),s.__H=void 0,e&&A.__e(e,s.__v))};var ht=typeof requestAnimationFrame=="function";function sn(t){var e,n=function(){clearTimeout(s),ht&&cancelAnimationFrame(e),setTimeout(t)},s=setTimeout(n,35);ht&&(e=requestAnimationFrame(n))}function ft(t){t!=1&&it==A.requestAnimationFrame||((it=A.requestAnimationFrame)||sn)(nn)}function oe(t){var e=M,n=t.__c;typeof n=="function"&&(t.__c=void 0,n()),M=e}function Pe(t){var e=M;t.__c=t.__(),M=e}function Ue(t,e){return!t||t.length!=e.length||e.some(function(n,s){return!Ie(n,t[s])})}function dt(t,e){return typeof e=="function"?e(t):e}var Le="#1f5fd0 #c9540a #1e8a3c #a566f0 #c81e3a #0f9aa0 #6b3d12 #e0489c #8a8400 #2b2080 #4a97e0 #7a1460".split(" "),yt="#4f86ff #ff9147 #3fb65f #b07cff #ff4d5e #25d5d0 #b0875c #ff9ed2 #e8dc3c #8a94c8 #a5dcff #c8409a".split(" "),gt=["#5a6472","#9aa4b2"],Fe=(t,e)=>(t.mixture??0)-(e.mixture??0)||e.members-t.members;function ve(t){let e=new Map;for(let n of[...t].sort(Fe)){let s=Le.map(()=>1/0);for(let[r,o]of e)s[o]=Math.min(s[o],Math.hypot(r.x-n.x,r.y-n.y));e.set(n,s.indexOf(Math.max(...s)))}return new Map([...e].map(([n,s])=>[n.community,s]))}var z=t=>t===void 0?`light-dark(${gt.join()})`:`light-dark(${Le[t]}, ${yt[t]})`,$t=t=>[1,3,5].map(e=>parseInt(t.slice(e,e+2),16));function vt(t,e){let n=new Uint8Array(262144);for(let[s,r]of t)n.set($t((e?yt:Le)[r]),4*s);return n.set($t(gt[Number(e)]),4*65535),n}var wt=function(t,e,n,s){var r;e[0]=0;for(var o=1;o<e.length;o++){var a=e[o++],i=e[o]?(e[0]|=a?1:2,n[e[o++]]):e[++o];a===3?s[0]=i:a===4?s[1]=Object.assign(s[1]||{},i):a===5?(s[1]=s[1]||{})[e[++o]]=i:a===6?s[1][e[++o]]+=i+"":a?(r=t.apply(i,wt(t,i,n,["",null])),s.push(r),i[0]?e[0]|=2:(e[o-2]=0,e[o]=r)):s.push(i)}return s},bt=new Map;function xt(t){var e=bt.get(this);return e||(e=new Map,bt.set(this,e)),(e=wt(this,e.get(t)||(e.set(t,e=(function(n){for(var s,r,o=1,a="",i="",c=[0],h=function(f){o===1&&(f||(a=a.replace(/^\s*\n\s*|\s*\n\s*$/g,"")))?c.push(0,f,a):o===3&&(f||a)?(c.push(3,f,a),o=2):o===2&&a==="..."&&f?c.push(4,f,0):o===2&&a&&!f?c.push(5,0,!0,a):o>=5&&((a||!f&&o===5)&&(c.push(o,0,a,r),o=6),f&&(c.push(o,f,0,r),o=6)),a=""},l=0;l<n.length;l++){l&&(o===1&&h(),h(l));for(var d=0;d<n[l].length;d++)s=n[l][d],o===1?s==="<"?(h(),c=[c],o=3):a+=s:o===4?a==="--"&&s===">"?(o=1,a=""):a=s+a[0]:i?s===i?i="":a+=s:s==='"'||s==="'"?i=s:s===">"?(h(),o=1):o&&(s==="="?(o=5,r=a,a=""):s==="/"&&(o<5||n[l][d+1]===">")?(h(),o===3&&(c=c[0]),o=c,(c=c[0]).push(2,0,o),o=0):s===" "||s==="	"||s===`
`||s==="\r"?(h(),o=2):a+=s),o===3&&a==="!--"&&(o=4,c=c[0])}return h(),c})(t)),e),arguments,[])).length>1?e:e[0]}var m=xt.bind(Ze),I=t=>t.toLocaleString("en"),G=(t,e,n=`${e}s`)=>`${I(t)} ${t===1?e:n}`,kt=t=>t.replace("-","\u2212"),P=t=>{let e=100*t;return e>0&&e<.05?"<\xA00.1\xA0%":kt(`${e!==0&&Math.abs(e)<1?e.toFixed(1):e.toFixed(0)}\xA0%`)},He=t=>kt(Math.abs(t)<100?t.toPrecision(3):t.toFixed(0)),F=t=>t.title===void 0||t.title===null?String(t.item):t.title;function H(t,e,n=0){let[s,r]=T({busy:!0}),o=O(!1);return E(()=>{let a=!0;r(h=>({...h,busy:!0}));let i=async()=>{try{let h=await t();a&&r({data:h,busy:!1})}catch(h){a&&r({error:h,busy:!1})}},c=o.current&&n?setTimeout(i,n):i();return o.current=!0,()=>{a=!1,clearTimeout(c)}},[e]),s}var U=({error:t})=>m`<p class="failure" role="alert">${t.message}</p>`,ie=({notes:t})=>(t??[]).map(e=>m`<p class="facts" key=${`${e.kind} ${e.text}`}>Note: ${e.text}</p>`);function J({colour:t}){return m`<span class="swatch" style=${{"--colour":z(t)}}></span>`}function K({share:t,colour:e}){let n=`${100*Math.min(1,Math.max(0,t))}%`;return m`<span class="bar" aria-hidden="true">
    <span style=${{width:n,"--colour":e}}></span>
  </span>`}function Q({items:t,value:e=r=>He(r.score),below:n,marked:s=()=>!1}){return m`<ol class="items">
    ${t.map(r=>m`<li key=${String(r.item)} class=${s(r)?"marked":""}>
          <span class="title" title=${String(r.item)}>${F(r)}</span>
          <span class="value">${e(r)}</span>
          ${n?.(r)}
        </li>`)}
  </ol>`}function be({label:t,placeholder:e,find:n,onChoose:s,clearLabel:r}){let o=ge(),[a,i]=T(""),[c,h]=T(0),[l,d]=T(!1),f=a.trim(),u=H(async()=>f?{query:f,options:await n(f)}:null,f,150),_=u.data?.options??[],p=l&&f!=="",$=O(null),g=v=>{i(""),d(!1),s(v)};E(()=>{h(0),!(!u.data||u.data.query!==$.current)&&($.current=null,_.length&&g(_[0]))},[u.data]);let y=v=>{if(v.key==="ArrowDown"||v.key==="ArrowUp"){v.preventDefault(),d(!0);let w=v.key==="ArrowDown"?1:-1;_.length&&h((c+w+_.length)%_.length)}else if(v.key==="Enter"){v.preventDefault();let w=v.target.value.trim();u.data?.query!==w?$.current=w:p&&_[c]&&g(_[c])}else v.key==="Escape"&&d(!1)};E(()=>{document.getElementById(`${o}-${c}`)?.scrollIntoView({block:"nearest"})},[c]);let S=!p||u.busy?"":_.length?G(_.length,"result"):"Nothing found";return m`<div class="search">
    <label for=${o} class=${r?"":"unseen"}>${t}</label>
    <input
      id=${o}
      type="text"
      role="combobox"
      autocomplete="off"
      spellcheck=${!1}
      placeholder=${e}
      aria-autocomplete="list"
      aria-expanded=${String(p&&_.length>0)}
      aria-controls=${`${o}-list`}
      aria-activedescendant=${p&&_.length?`${o}-${c}`:void 0}
      value=${a}
      onInput=${v=>{i(v.target.value),d(!0),$.current=null}}
      onKeyDown=${y}
      onBlur=${()=>d(!1)}
    />
    <ul id=${`${o}-list`} role="listbox" aria-label=${t} hidden=${!p||!_.length}>
      ${_.map((v,w)=>m`<li
            key=${v.key}
            id=${`${o}-${w}`}
            role="option"
            aria-selected=${String(w===c)}
            onMouseDown=${b=>b.preventDefault()}
            onClick=${()=>g(v)}
          >
            <span>${v.text}</span><small>${v.kind}</small>
          </li>`)}
    </ul>
    ${p&&u.error&&m`<${U} error=${u.error} />`}
    ${p&&!u.busy&&!u.error&&!_.length&&m`<p class="nothing">Nothing found</p>`}
    <span class="unseen" role="status">${S}</span>
  </div>`}function ze(t,e){let[n,s]=T(!1),o=t.length-e>0&&m`<button type="button" class="quiet" onClick=${()=>s(!n)} aria-expanded=${String(n)}>
      ${n?"Show fewer":`Show all ${I(t.length)}`}
    </button>`;return[n?t:t.slice(0,e),o]}var on=`#version 300 es
in vec2 place;
in uint community;
uniform vec2 centre, scale;
uniform float size;
uniform int only, pass;
uniform highp sampler2D palette;
flat out vec4 colour;
flat out float width;
void main() {
  bool chosen = only < 0 || int(community) == only;
  gl_Position = chosen == (pass == 1) ? vec4((place - centre) * scale, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  width = only >= 0 && chosen ? size * 1.3 : size;
  gl_PointSize = width;
  int at = int(community);
  colour = vec4(texelFetch(palette, ivec2(at & 255, at >> 8), 0).rgb, chosen ? 0.85 : 0.18);
}`,rn=`#version 300 es
precision mediump float;
flat in vec4 colour;
flat in float width;
out vec4 shade;
void main() {
  float edge = (0.5 - length(gl_PointCoord - 0.5)) * width;
  float alpha = colour.a * clamp(edge + 0.5, 0.0, 1.0);
  shade = vec4(colour.rgb * alpha, alpha);
}`;var we=class{constructor(e,{onView:n,onPick:s,onHover:r}){this.canvas=e,this.on={onView:n,onPick:s,onHover:r},this.x=this.y=0,this.zoom=1,this.only=-1,this.pointers=new Map,this.gl=e.getContext("webgl2",{antialias:!1,depth:!1}),this.listeners=new AbortController,this.gl&&this.prepare(),this.listen(),this.observer=new ResizeObserver(()=>this.resize()),this.observer.observe(e),this.resize()}prepare(){let e=this.gl,n=e.createProgram();for(let[r,o]of[[e.VERTEX_SHADER,on],[e.FRAGMENT_SHADER,rn]]){let a=e.createShader(r);e.shaderSource(a,o),e.compileShader(a),e.attachShader(n,a)}if(e.bindAttribLocation(n,0,"place"),e.bindAttribLocation(n,1,"community"),e.linkProgram(n),!e.getProgramParameter(n,e.LINK_STATUS)&&!e.isContextLost())throw new Error(e.getProgramInfoLog(n));e.useProgram(n);let s=["centre","scale","size","only","pass"];this.at=Object.fromEntries(s.map(r=>[r,e.getUniformLocation(n,r)])),this.placeBuffer=e.createBuffer(),this.communityBuffer=e.createBuffer(),e.bindTexture(e.TEXTURE_2D,e.createTexture()),e.texParameteri(e.TEXTURE_2D,e.TEXTURE_MIN_FILTER,e.NEAREST),e.texParameteri(e.TEXTURE_2D,e.TEXTURE_MAG_FILTER,e.NEAREST),e.enable(e.BLEND),e.blendFunc(e.ONE,e.ONE_MINUS_SRC_ALPHA),this.upload()}upload(){let e=this.gl;e&&(this.palette&&e.texImage2D(e.TEXTURE_2D,0,e.RGBA8,256,256,0,e.RGBA,e.UNSIGNED_BYTE,this.palette),this.points?.users&&(e.bindBuffer(e.ARRAY_BUFFER,this.placeBuffer),e.bufferData(e.ARRAY_BUFFER,this.points.places,e.STATIC_DRAW),e.enableVertexAttribArray(0),e.vertexAttribPointer(0,2,e.FLOAT,!1,0,0),e.bindBuffer(e.ARRAY_BUFFER,this.communityBuffer),e.bufferData(e.ARRAY_BUFFER,this.points.communities,e.STATIC_DRAW),e.enableVertexAttribArray(1),e.vertexAttribIPointer(1,1,e.UNSIGNED_SHORT,0,0)),this.redraw())}show(e){this.points=e,this.grid=void 0,this.upload(),this.draw()}colour(e){this.palette=e,this.upload()}focusOn(e){this.only=e,this.redraw()}resize(){let e=Math.min(window.devicePixelRatio||1,2);this.width=this.canvas.clientWidth,this.height=this.canvas.clientHeight,this.canvas.width=Math.max(1,Math.round(this.width*e)),this.canvas.height=Math.max(1,Math.round(this.height*e)),this.ratio=e,this.draw()}get unit(){return .47*Math.min(this.width,this.height)*this.zoom}toScreen(e,n){return[this.width/2+(e-this.x)*this.unit,this.height/2-(n-this.y)*this.unit]}toMap(e,n){return[this.x+(e-this.width/2)/this.unit,this.y-(n-this.height/2)/this.unit]}redraw(){this.frame??=requestAnimationFrame(()=>this.draw())}draw(){cancelAnimationFrame(this.frame),this.frame=void 0;let{gl:e,at:n,points:s}=this;if(!(!this.width||!this.height)){if(e&&!e.isContextLost()&&(e.viewport(0,0,this.canvas.width,this.canvas.height),e.clearColor(0,0,0,0),e.clear(e.COLOR_BUFFER_BIT),s?.users&&this.palette)){let o=Math.max(1,Math.min(this.width,this.height)/900)*Math.min(7,Math.max(2.2,260/Math.sqrt(s.users)))*Math.min(2.5,this.zoom**.35);e.uniform2f(n.centre,this.x,this.y),e.uniform2f(n.scale,2*this.unit/this.width,2*this.unit/this.height),e.uniform1f(n.size,o*this.ratio),e.uniform1i(n.only,this.only);for(let a of this.only<0?[1]:[0,1])e.uniform1i(n.pass,a),e.drawArrays(e.POINTS,0,s.users);this.canvas.dataset.drawn=s.users}this.on.onView(this)}}reset(){this.x=this.y=0,this.zoom=1,this.redraw()}panBy(e,n){this.x=Math.min(1.5,Math.max(-1.5,this.x-e/this.unit)),this.y=Math.min(1.5,Math.max(-1.5,this.y+n/this.unit)),this.redraw()}zoomBy(e,n=this.width/2,s=this.height/2){let[r,o]=this.toMap(n,s);this.zoom=Math.min(400,Math.max(.5,this.zoom*e));let[a,i]=this.toMap(n,s);this.x+=r-a,this.y+=o-i,this.redraw()}goTo(e,n){let[s,r]=this.toScreen(e,n);(s<20||r<20||s>this.width-20||r>this.height-20)&&([this.x,this.y]=[e,n]),this.redraw()}makeGrid(){let{places:e,users:n}=this.points,s=i=>256*ee(e[2*i+1])+ee(e[2*i]),r=new Uint32Array(256*256+1);for(let i=0;i<n;i++)r[s(i)+1]++;for(let i=0;i<256*256;i++)r[i+1]+=r[i];let o=new Uint32Array(n),a=r.slice();for(let i=0;i<n;i++)o[a[s(i)]++]=i;return{starts:r,order:o}}nearest(e,n,s=10){if(!this.points?.users)return-1;this.grid??=this.makeGrid();let{places:r,communities:o}=this.points,{starts:a,order:i}=this.grid,[c,h]=this.toMap(e,n),l=s/this.unit,[d,f]=[-1,l*l];for(let u=ee(h-l);u<=ee(h+l);u++){let _=a[256*u+ee(c-l)],p=a[256*u+ee(c+l)+1];for(let $=_;$<p;$++){let g=i[$];if(this.only>=0&&o[g]!==this.only)continue;let y=(r[2*g]-c)**2+(r[2*g+1]-h)**2;y<f&&([d,f]=[g,y])}}return d}listen(){let{canvas:e,pointers:n}=this,s=(c,h,l={})=>e.addEventListener(c,h,{signal:this.listeners.signal,...l}),r=c=>{let h=e.getBoundingClientRect();return[c.clientX-h.left,c.clientY-h.top]},o=()=>{let[[c,h],[l,d]]=n.values();return{length:Math.hypot(c-l,h-d),middle:[(c+l)/2,(h+d)/2]}},a=0;s("pointerdown",c=>{c.button||(e.setPointerCapture(c.pointerId),n.size||(a=0),n.set(c.pointerId,r(c)))}),s("pointermove",c=>{let[h,l]=r(c),d=n.get(c.pointerId);if(!d)return this.on.onHover(this.nearest(h,l));if(n.size===2){let f=o();n.set(c.pointerId,[h,l]);let u=o();this.panBy(u.middle[0]-f.middle[0],u.middle[1]-f.middle[1]),this.zoomBy(u.length/Math.max(f.length,1),...u.middle),a=1/0}else n.set(c.pointerId,[h,l]),a+=Math.hypot(h-d[0],l-d[1]),a>4&&this.panBy(h-d[0],l-d[1])});let i=c=>{if(!n.delete(c.pointerId)||c.type!=="pointerup"||a>4)return;let h=this.nearest(...r(c),c.pointerType==="mouse"?10:18);h>=0&&this.on.onPick(h)};s("pointerup",i),s("pointercancel",i),s("pointerleave",()=>this.on.onHover(-1)),s("wheel",c=>{c.preventDefault();let h=c.deltaMode?30*c.deltaY:c.deltaY;this.zoomBy(Math.exp(Math.max(-1,Math.min(1,-h/300))),...r(c))},{passive:!1}),s("keydown",c=>{if(c.ctrlKey||c.metaKey||c.altKey)return;let h={ArrowLeft:()=>this.panBy(40,0),ArrowRight:()=>this.panBy(-40,0),ArrowUp:()=>this.panBy(0,40),ArrowDown:()=>this.panBy(0,-40),"+":()=>this.zoomBy(1.4),"=":()=>this.zoomBy(1.4),"-":()=>this.zoomBy(1/1.4),0:()=>this.reset()};h[c.key]&&(c.preventDefault(),h[c.key]())}),s("webglcontextlost",c=>c.preventDefault()),s("webglcontextrestored",()=>this.prepare())}close(){cancelAnimationFrame(this.frame),this.listeners.abort(),this.observer.disconnect()}},ee=t=>Math.max(0,Math.min(255,Math.floor((t+1)/2*256)));var Ge=(t,e,n,s)=>{let[r,o]=e.toScreen(n,s);return t.style.transform=`translate(${r}px, ${o}px)`,[r,o]};function St({points:t,error:e,communities:n,colours:s,user:r,community:o,dark:a,onUser:i,onCommunity:c}){let h=O(null),[l,d]=T(null),f=O(new Map),u=O(null),_=O(null),[p,$]=T(!0),g=O({});g.current={points:t,communities:n,user:r,community:o,onUser:i};let y=w=>{let b=[],C=D=>+(D.community===g.current.community),x=(D,R)=>C(R)-C(D)||Fe(D,R);for(let D of[...g.current.communities].sort(x)){let R=f.current.get(D.community);if(!R)continue;let[N,ce]=Ge(R,w,D.x,D.y),Gt=b.some(([qt,Vt])=>Math.abs(qt-N)<28&&Math.abs(Vt-ce)<26),Wt=N<0||ce<0||N>w.width||ce>w.height;R.hidden=Gt||Wt,R.hidden||b.push([N,ce])}let Z=g.current.user,L=Number.isFinite(Z?.x);u.current.hidden=!L,L&&Ge(u.current,w,Z.x,Z.y),_.current.hidden=!0};E(()=>{let w,b=setTimeout(()=>{w=new we(h.current,{onView:y,onPick:C=>g.current.onUser(g.current.points.rows[C]),onHover:C=>{h.current.classList.toggle("pointing",C>=0),_.current.hidden=C<0;let{places:x}=g.current.points??{};C>=0&&Ge(_.current,w,x[2*C],x[2*C+1])}}),d(w)});return()=>{clearTimeout(b),w?.close()}},[]),Oe(()=>l?.colour(vt(s,a)),[l,s,a]),Oe(()=>l?.show(t??{users:0}),[l,t]),E(()=>l?.focusOn(o??-1),[l,o]),E(()=>Number.isFinite(r?.x)?l?.goTo(r.x,r.y):l?.redraw(),[l,r?.row]),E(()=>l?.redraw(),[l,n,p]);let S=t?`Map of ${G(t.users,"user")}, ${G(n.length,"community","communities")}`:"Map of users",v=p?n:[];return m`<section class="map" aria-label="Map">
    <canvas
      ref=${h}
      tabindex="0"
      role="application"
      aria-label=${`${S}. Arrow keys move it, plus and minus zoom, 0 shows all. Search finds users by name.`}
    ></canvas>
    <div class="marks">
      <span class="ring hovered" ref=${_} hidden></span>
      <span class="ring" ref=${u} hidden></span>
      ${v.map(w=>m`<button
            type="button"
            key=${w.community}
            ref=${b=>b?f.current.set(w.community,b):f.current.delete(w.community)}
            tabindex="-1"
            class=${w.community===o?"centre chosen":"centre"}
            style=${{"--colour":z(s.get(w.community))}}
            aria-label=${`Community ${w.community}: ${w.name}`}
            onClick=${()=>c(w.community)}
          >
            ${w.community}<span class="name" aria-hidden="true">${w.name}</span>
          </button>`)}
    </div>
    <div class="tools" role="group" aria-label="Map controls">
      <button type="button" aria-label="Zoom in" onClick=${()=>l?.zoomBy(1.6)}>+</button>
      <button type="button" aria-label="Zoom out" onClick=${()=>l?.zoomBy(1/1.6)}>−</button>
      <button type="button" onClick=${()=>l?.reset()}>Reset</button>
      ${n.length>0&&m`<button type="button" aria-pressed=${String(p)} onClick=${()=>$(!p)}>
          Centres
        </button>`}
    </div>
    ${l&&!l.gl&&m`<p class="failure">No map: this browser has no WebGL2. All else works.</p>`}
    ${e&&m`<${U} error=${e} />`}
    ${!t&&!e&&m`<p class="waiting">The map is on its way …</p>`}
  </section>`}var Mt=50,an=t=>Math.min(Mt,Number(/^half-life ([\d.]+) positions/.exec(t??"")?.[1]??0));function Ct({label:t,shown:e,value:n,onInput:s,...r}){let o=ge();return m`<div class="slider">
    <label for=${o}>${t}</label>
    <output for=${o}>${e}</output>
    <input
      id=${o}
      type="range"
      value=${n}
      aria-valuetext=${e}
      onInput=${a=>s(Number(a.target.value))}
      ...${r}
    />
  </div>`}function cn({model:t,recency:e,share:n,onRecency:s,onShare:r}){let o=t.recency===null?"off":t.recency.replace("half-life ",""),a=e===null?`${o} (the model\u2019s)`:e?G(e,"position"):"off",i=n??t.alpha;return m`<fieldset class="controls">
    <legend>What if</legend>
    <${Ct}
      label="Recency half-life"
      shown=${a}
      min="0"
      max=${Mt}
      step="1"
      value=${e??an(t.recency)}
      onInput=${s}
    />
    ${t.communities>0&&t.alpha!==null&&m`<${Ct}
        label="Global share"
        shown=${n===null?`${P(i)} (the model\u2019s)`:P(i)}
        min="0"
        max="100"
        step="5"
        value=${Math.round(100*i)}
        onInput=${c=>r(c/100)}
      />`}
    <button
      type="button"
      class="quiet"
      disabled=${e===null&&n===null}
      onClick=${()=>{s(null),r(null)}}
    >
      Back to the model’s
    </button>
  </fieldset>`}var At=3;function ln({item:t}){let e=t.because.filter(i=>i.share>=.005),n=e.slice(0,At),s=t.because.filter(i=>i.share<=-.05).slice(-2),r=e.slice(At).reduce((i,c)=>i+c.share,0),o=i=>m`<li key=${String(i.item)}>${F(i)} <b>${P(i.share)}</b></li>`,a=t.everyone?.share??0;return!n.length&&a<=0?m`<p class="because">no item of the history speaks for it</p>`:m`<ul class="because" aria-label="Because of">
    ${n.map(o)}
    ${r>=.005&&m`<li>${I(e.length-n.length)} more <b>${P(r)}</b></li>`}
    ${a>=.005&&m`<li>popular with everyone <b>${P(a)}</b></li>`}
    ${s.map(i=>m`<li key=${String(i.item)}>in spite of ${F(i)} <b>${P(i.share)}</b></li>`)}
  </ul>`}var We=(t,e=()=>"")=>t.map((n,s)=>m`${s>0&&" \xB7 "}${F(n)}${e(n)}`);function qe({items:t,known:e,raised:n}){let s=(e??[]).filter(r=>r.lift>1);return m`<dl class="says">
    <dt>says</dt>
    <dd>${We(t)}</dd>
    ${n?.length>0&&m`<dt>raises</dt>
        <dd>${We(n)}</dd>`}
    ${s.length>0&&m`<dt>known for</dt>
        <dd>${We(s,r=>` (${r.lift.toFixed(1)}\xD7)`)}</dd>`}
  </dl>`}function Tt({inside:t,colours:e,onCommunity:n,users:s}){let[r,o]=ze(t.communities,5);return t.communities.length?m`<ul class="sources">
      ${r.map(a=>{let i=e.get(a.community),c=[`${I(a.members)}${s?` of ${I(s)} users`:" members"}`];return a.membership!==void 0&&c.unshift(`membership ${P(a.membership)}`),m`<li key=${a.community}>
          <div class="source">
            <${J} colour=${i} />
            <button type="button" class="link" onClick=${()=>n(a.community)}>
              Community ${a.community}${a.name?`: ${a.name}`:` around ${a.anchor}`}
            </button>
            <b>${P(a.weight)}</b>
          </div>
          <${K} share=${a.weight} colour=${z(i)} />
          <p class="facts">${c.join(" \xB7 ")}</p>
          <details>
            <summary>What it says</summary>
            <${qe} items=${a.items} known=${a.known_for} raised=${a.raises} />
          </details>
        </li>`})}
      <li>
        <div class="source"><${J} /> <span>The global model</span> <b>${P(t.global.weight)}</b></div>
        <${K} share=${t.global.weight} colour=${z()} />
        <details>
          <summary>What it says</summary>
          <${qe} items=${t.global.items} />
        </details>
      </li>
    </ul>
    ${o}`:m`<p>No community covers this history: the global model answers alone.</p>`}function un({parts:t,...e}){return m`<ul class="sources">
    ${t.map(n=>m`<li key=${n.part}>
          <div class="source"><span>${n.part}</span> <b>${P(n.weight)}</b></div>
          <${K} share=${n.weight} />
          <details>
            <summary>What it says</summary>
            <${qe} items=${n.items} />
          </details>
          ${n.inside?.communities&&m`<${Tt} inside=${n.inside} ...${e} />`}
        </li>`)}
  </ul>`}function mn({history:t,counts:e}){let n=t.map((a,i)=>({...a,counts:e?.[i]??1})).reverse(),[s,r]=ze(n,15),o=Math.max(...n.map(a=>a.counts),1e-9);return n.length?m`<ol class="history">
      ${s.map(a=>m`<li key=${String(a.item)}>
            <span class="title" title=${String(a.item)}>${F(a)}</span>
            <${K} share=${a.counts/o} />
            <span class="value">${a.counts.toFixed(2)}</span>
          </li>`)}
    </ol>
    ${r}`:m`<p>No history.</p>`}function xe({source:t,model:e,who:n,row:s,colours:r,users:o,onCommunity:a,onHistory:i}){let[c,h]=T(null),[l,d]=T(null),f={model:e.name,n:10,...n};c!==null&&(f.recency=c?String(c):"none"),l!==null&&(f.global_share=l);let _=H(async()=>{let y=await t.explain(s,f);return i?.(y.history),y},JSON.stringify([f,e.fingerprint]),120),p=_.data,$=_.busy||_.error?"":`${I(p.items.length)} items listed`,g={colours:r,users:o,onCommunity:a};return m`<div class="answer" aria-busy=${String(_.busy)}>
    ${!t.exported&&m`<${cn} model=${e} recency=${c} share=${l} onRecency=${h} onShare=${d} />`}
    <p class="unseen" role="status">${$}</p>
    ${_.error&&m`<${U} error=${_.error} />`}
    ${!p&&_.busy&&m`<p class="waiting">The list is on its way …</p>`}
    ${p&&m`<div class="columns">
        <section class="list">
          <h3>Recommended</h3>
          <${ie} notes=${p.notes} />
          ${!p.items.length&&m`<p>Nothing is left to recommend.</p>`}
          <${Q}
            items=${p.items}
            value=${y=>m`<span class="unseen">score </span>${He(y.score)}`}
            below=${y=>m`<${ln} item=${y} />`}
          />
          <p class="facts">
            ${p.is_exact?"Shares are of all that speaks for an item; for and against add up to its score.":"Shares by leave-one-out: how far the score falls without the item."}
          </p>
        </section>
        ${p.communities&&m`<section>
            <h3>Who answers</h3>
            <${Tt} inside=${p} ...${g} />
          </section>`}
        ${p.parts&&m`<section>
            <h3>Who answers</h3>
            <${un} parts=${p.parts} ...${g} />
          </section>`}
        <section>
          <h3>History, newest first</h3>
          <p class="facts">The figure is what an item counts.</p>
          <${mn} history=${p.history} counts=${p.counts} />
        </section>
      </div>`}
  </div>`}var Rt=!1;addEventListener("hashchange",()=>{Rt=!0});function Nt({children:t,onClose:e}){let n=O(null);return E(()=>{Rt&&n.current.focus({preventScroll:window.innerWidth>900})},[]),m`<div class="heading">
    <h2 ref=${n} tabindex="-1">${t}</h2>
    <button type="button" class="quiet" onClick=${e}>All communities</button>
  </div>`}var Et={mixtures:"by membership",anchors:"around anchors"};function It({about:t,notes:e,colours:n,onCommunity:s}){if(!t.communities.length)return m`<h2>No communities</h2>
      <p>This model has no communities: all points have one colour. Click a point or search for a user.</p>
      <${ie} notes=${e} />`;let r=new Set(t.communities.map(a=>a.mixture)),o=Math.max(...t.communities.map(a=>a.members),1);return m`<h2>Communities</h2>
    <p class="facts">
      ${G(t.users,"user")}, ${I(t.communities.length)} communities
      ${Et[t.kind]?` ${Et[t.kind]}`:""}${t.alpha===null?"":`; the global model has ${P(t.alpha)} of an answer`}
    </p>
    <${ie} notes=${e} />
    ${[...r].map(a=>m`${r.size>1&&m`<h3>Mixture ${a}</h3>`}
          <ul class="communities">
            ${t.communities.filter(i=>i.mixture===a).map(i=>m`<li key=${i.community}>
                    <button type="button" onClick=${()=>s(i.community)}>
                      <${J} colour=${n.get(i.community)} />
                      <span class="number">${i.community}</span>
                      <span class="title">${i.name}</span>
                      <span class="value">${I(i.members)}<span class="unseen"> users</span></span>
                      <${K} share=${i.members/o} colour=${z(n.get(i.community))} />
                    </button>
                  </li>`)}
          </ul>`)}`}var _n=(t,e)=>t.communities.reduce((n,s)=>n+ +(s===e),0);function Dt({source:t,model:e,number:n,points:s,colours:r,onUser:o,onClose:a}){let{data:i,error:c}=H(()=>t.community(e.name,n),JSON.stringify([e.name,e.fingerprint,n])),h=f=>new Set((f??[]).map(u=>u.item)),[l,d]=[h(i?.items),h(i?.global)];return m`<${Nt} onClose=${a}> <${J} colour=${r.get(n)} /> Community ${n} <//>
    ${c&&m`<${U} error=${c} />`}
    ${!i&&!c&&m`<p class="waiting">The community is on its way …</p>`}
    ${i&&m`<p class="lead">${i.name}</p>
        <p class="facts">
          ${I(i.members)} of ${G(i.users,"user")} (${P(i.members/i.users)})
          ${s&&`; on the map it is the strongest one of ${I(_n(s,n))}`}
        </p>
        <div class="columns">
          <section>
            <h3>Taken beyond others</h3>
            <p class="facts">How many times as often as all users.</p>
            <${Q}
              items=${i.known_for.filter(f=>f.lift>1)}
              value=${f=>`${f.lift.toFixed(1)}\xD7`}
            />
          </section>
          <section>
            <h3>Typical users</h3>
            <ul class="typical">
              ${i.typical_users.map(f=>m`<li key=${f.row}>
                    <button type="button" class="link" onClick=${()=>o(f.row)}>User ${f.user}</button>
                    <span class="value">membership ${P(f.membership)}</span>
                  </li>`)}
            </ul>
          </section>
        </div>
        <p class="facts">Both lists are for the mean history of the members. Bold: only one of the two lists has it.</p>
        <div class="columns pair">
          <section>
            <h3>Its own list</h3>
            <${Q} items=${i.items} marked=${f=>!d.has(f.item)} />
          </section>
          <section>
            <h3>The global list</h3>
            <${Q} items=${i.global} marked=${f=>!l.has(f.item)} />
          </section>
        </div>`}
    <p class="unseen" role="status">${i?`Community ${n}: ${i.name}`:""}</p>`}function Pt({source:t,model:e,row:n,user:s,error:r,communities:o,users:a,colours:i,onCommunity:c,onClose:h}){let l=o.find(d=>d.community===s?.community);return m`<${Nt} onClose=${h}>User ${s?s.user:"\u2026"}<//>
    ${r&&m`<${U} error=${r} />`}
    ${l&&m`<p class="facts home">
        <${J} colour=${i.get(l.community)} />
        <button type="button" class="link" onClick=${()=>c(l.community)}>
          Community ${l.community}: ${l.name}
        </button>
      </p>`}
    ${s&&s.x===null&&m`<p class="facts">This user is not on the map.</p>`}
    ${s&&m`<${xe}
        source=${t}
        model=${e}
        who=${{user:s.user}}
        row=${n}
        users=${a}
        colours=${i}
        onCommunity=${c}
      />`}`}var Ve=new Map;function Bt({label:t,models:e,name:n,without:s,onModel:r}){return m`<label class="field">
    <span>${t}</span>
    <select value=${n} onChange=${o=>r(o.target.value)}>
      ${s&&m`<option value="">none</option>`}
      ${e.map(o=>m`<option key=${o.name} value=${o.name}>${o.name} (${o.label})</option>`)}
    </select>
  </label>`}function hn({source:t,model:e,items:n,named:s,onCommunity:r,onHistory:o}){let a=H(()=>t.communities(e.name),JSON.stringify([e.name,e.fingerprint])),i=ve(a.data?.communities??[]);return m`<section class="model" aria-label=${`Answer of ${e.name}`}>
    ${s&&m`<h3>${e.name}</h3>`}
    <${xe}
      source=${t}
      model=${e}
      who=${{items:n}}
      colours=${i}
      users=${a.data?.users}
      onCommunity=${c=>r(e.name,c)}
      onHistory=${o}
    />
  </section>`}function Ot({source:t,models:e,model:n,items:s,onItems:r,onModel:o,onCommunity:a}){let[i,c]=T(""),h=e.find(_=>_.name===i),[,l]=Be(_=>_+1,0);E(()=>window.scrollTo(0,0),[]);let d=async _=>(await t.search(n.name,_,"items")).items.map($=>({key:String($.item),text:F($),kind:String($.item),item:$})),f=_=>{for(let p of _)Ve.set(p.item,F(p));l()},u=_=>r(s.filter((p,$)=>$!==_));return m`<div class="playground">
    <h2>Playground</h2>
    <p class="facts">
      Name what somebody took, oldest first, and see what is recommended and which communities answer.
    </p>
    <${be}
      label="Add an item by its title or id"
      clearLabel
      find=${d}
      onChoose=${_=>{f([_.item]),r([...s.filter(p=>p!==_.item.item),_.item.item])}}
    />
    ${s.length>0?m`<ol class="chosen" aria-label="History, oldest first">
            ${s.map((_,p)=>m`<li key=${String(_)}>
                  <span>${Ve.get(_)??String(_)}</span>
                  <button
                    type="button"
                    aria-label=${`Remove ${Ve.get(_)??_}`}
                    onClick=${()=>u(p)}
                  >
                    ×
                  </button>
                </li>`)}
            <li><button type="button" class="quiet" onClick=${()=>r([])}>Clear</button></li>
          </ol>`:m`<p class="waiting">No item yet.</p>`}
    ${e.length>1&&m`<div class="models">
        <${Bt} label="Model" models=${e} name=${n.name} onModel=${o} />
        <${Bt} label="Beside it" models=${e} name=${i} without onModel=${c} />
      </div>`}
    ${s.length>0&&m`<div class=${h?"beside two":"beside"}>
        ${[n,h].filter(Boolean).map((_,p)=>m`<${hn}
                key=${`${p} ${_.name}`}
                source=${t}
                model=${_}
                items=${s}
                named=${!!h}
                onCommunity=${a}
                onHistory=${p?void 0:f}
              />`)}
      </div>`}
  </div>`}var Y=class extends Error{constructor(e,n,s){super(s?`${n}: ${s}`:n),this.status=e}},fn="LOCAMAP1";function Ut(t){let e=new Uint8Array(t);if(String.fromCharCode(...e.subarray(0,8))!==fn)throw new Y(0,"The map","not a LOCA map");let[n]=new Uint32Array(t,8,2);return{users:n,places:new Float32Array(t,16,2*n),rows:new Uint32Array(t,16+8*n,n),communities:new Uint16Array(t,16+12*n,n)}}async function Lt(t,e){let n={},s=sessionStorage.getItem("loca-token");s&&(n.Authorization=`Bearer ${s}`),e&&(n["Content-Type"]="application/json");let r;try{r=await fetch(t,{method:e?"POST":"GET",headers:n,body:e&&JSON.stringify(e)})}catch(a){throw new Y(0,"The service does not answer",a.message)}if(r.ok)return r;let o=await r.json().catch(()=>({}));throw new Y(r.status,o.title??`Status ${r.status}`,o.detail)}var te=async(t,e)=>(await Lt(t,e)).json(),ae=t=>new URLSearchParams(t).toString(),pn={exported:!1,models:()=>te("v1/models"),communities:t=>te(`v1/communities?${ae({model:t})}`),community:(t,e)=>te(`v1/communities/${e}?${ae({model:t,n:10})}`),map:async t=>Ut(await(await Lt(`v1/map?${ae({model:t})}`)).arrayBuffer()),user:(t,e)=>te(`v1/map/users/${e}?${ae({model:t})}`),search:(t,e,n)=>te(`v1/search?${ae({model:t,q:e,what:n,n:12})}`),explain:(t,e)=>te("v1/explain",e)};function dn(t){let e=(n,s)=>{let r=t[n]?.[s];if(!r)throw new Y(404,"Not in this file",`the exported page has no ${n} ${s}`);return r};return{exported:!0,models:async()=>t.models,communities:async()=>t.communities,community:async(n,s)=>e("community",s),map:async()=>Ut(Uint8Array.from(atob(t.map),n=>n.charCodeAt(0)).buffer),user:async(n,s)=>{if(!t.users[s]){let r=Object.keys(t.users).length.toLocaleString("en");throw new Y(404,"Not in this file",`the exported page has ${r} users, and not this one`)}return t.users[s].user},search:async(n,s)=>({users:Object.values(t.users).map(o=>({user:o.user.user,row:o.user.row})).filter(o=>String(o.user).includes(s)).slice(0,12),items:[]}),explain:async n=>e("users",n).explain}}function Ft(){let t=document.getElementById("loca-data");return t?dn(JSON.parse(t.textContent)):pn}var $n=5,B=Ft();function Ht(){let t=new URLSearchParams(location.hash.slice(1)),e=r=>/^\d+$/.test(t.get(r)??"")?Number(t.get(r)):null,n=null;try{n=t.has("items")?JSON.parse(t.get("items")||"[]"):null}catch{n=[]}let s=r=>typeof r=="string"||typeof r=="number";return n!==null&&(n=Array.isArray(n)?n.filter(s):[]),{model:t.get("model"),user:e("user"),community:e("community"),items:n}}function yn(){let[t,e]=T(Ht);return E(()=>{let s=()=>e(Ht());return addEventListener("hashchange",s),()=>removeEventListener("hashchange",s)},[]),[t,s=>{let r={model:t.model,...s},o=Object.entries(r).filter(([,a])=>a!=null);location.hash=new URLSearchParams(o.map(([a,i])=>[a,a==="items"?JSON.stringify(i):i]))}]}function zt(t){try{return t(localStorage)}catch{return null}}function gn(){let t=ye(()=>matchMedia("(prefers-color-scheme: dark)"),[]),[e,n]=T(()=>zt(i=>i.getItem("loca-theme"))),[s,r]=T(t.matches);E(()=>{let i=()=>r(t.matches);return t.addEventListener("change",i),()=>t.removeEventListener("change",i)},[]);let o=e?e==="dark":s;return document.documentElement.dataset.theme=o?"dark":"light",[o,()=>{let i=o?"light":"dark";zt(c=>c.setItem("loca-theme",i)),n(i)}]}function vn(){let[t,e]=T({}),n=async()=>{try{let s=await B.models();e({data:s})}catch(s){e(r=>({data:r.data,error:s}))}};return E(()=>{if(n(),B.exported)return;let s=setInterval(()=>document.visibilityState==="visible"&&n(),1e3*$n);return()=>clearInterval(s)},[]),[t,n]}function bn({error:t,onToken:e}){return m`<main class="token">
    <h2>A token is needed</h2>
    <${U} error=${t} />
    <form onSubmit=${s=>{s.preventDefault(),sessionStorage.setItem("loca-token",s.target.elements.token.value.trim()),e()}}>
      <label class="field"><span>Token</span><input name="token" type="password" autocomplete="off" required /></label>
      <button type="submit">Go on</button>
    </form>
    <p class="facts">It stays in this tab and is forgotten when the tab closes.</p>
  </main>`}function wn({health:t,model:e}){let{data:n,error:s}=t,r=o=>o==null?"\u2013":`${o.toFixed(1)} ms`;return m`<footer>
    ${e&&m`<dl>
        <div>
          <dt>model</dt>
          <dd>${e.name} (${e.label})</dd>
        </div>
        <div>
          <dt>fingerprint</dt>
          <dd><code>${e.fingerprint}</code></dd>
        </div>
        <div>
          <dt>users</dt>
          <dd>${I(e.users)}</dd>
        </div>
        <div>
          <dt>items</dt>
          <dd>${I(e.items)}</dd>
        </div>
        ${!B.exported&&m`<div>
              <dt>requests</dt>
              <dd>${I(n.requests)}</dd>
            </div>
            <div>
              <dt>p50</dt>
              <dd>${r(n.p50_ms)}</dd>
            </div>
            <div>
              <dt>p99</dt>
              <dd>${r(n.p99_ms)}</dd>
            </div>
            <div>
              <dt>waiting</dt>
              <dd>${I(n.queue)}</dd>
            </div>`}
        <div>
          <dt>loca</dt>
          <dd>${n.version}</dd>
        </div>
      </dl>`}
    ${!B.exported&&m`<a href="docs">HTTP interface</a>`}
    ${B.exported&&m`<p>An exported page: it has no service behind it, so there are no sliders and no playground.</p>`}
    ${e?.error&&m`<p class="failure">A newer version was not loaded: ${e.error}</p>`}
    ${s&&m`<${U} error=${s} />`}
  </footer>`}function xn(t,e){let n=e.toLowerCase();return t.filter(s=>String(s.community)===n||s.name.toLowerCase().includes(n)).slice(0,6)}function kn(){let[t,e]=vn(),[n,s]=yn(),[r,o]=gn(),a=O(null),i=t.data?.models??[],c=i.find(b=>b.name===n.model)??i.find(b=>b.name===t.data.default),h=JSON.stringify([c?.name,c?.fingerprint]),l=H(async()=>c?B.communities(c.name):null,h),d=H(async()=>c?B.map(c.name):null,h),f=H(async()=>c&&n.user!==null?B.user(c.name,n.user):null,JSON.stringify([h,n.user])),u=l.data?.communities??[],_=ye(()=>ve(u),[l.data]),p=f.data?.row===n.user&&f.data.model===c.name?f.data:null,$=n.items!==null&&!B.exported,g=n.user!==null?`User ${p?.user??n.user}`:n.community!==null?`Community ${n.community}`:"";if(E(()=>{document.title=[$?"Playground":g,"LOCA explorer"].filter(Boolean).join(" \u2013 ")},[$,g]),E(()=>a.current?.scrollTo(0,0),[n]),t.error?.status===401){let b=()=>sessionStorage.getItem("loca-token")?location.reload():e();return m`<header><h1>LOCA explorer</h1></header>
      <${bn} error=${t.error} onToken=${b} />`}if(!c)return m`<header><h1>LOCA explorer</h1></header>
      <main>
        ${t.error?m`<${U} error=${t.error} />`:m`<p class="waiting">Loading …</p>`}
      </main>`;let y=async b=>{let C=await B.search(c.name,b,"all");return[...C.users.map(x=>({key:`u${x.row}`,text:String(x.user),kind:"user",user:x.row})),...xn(u,b).map(x=>({key:`c${x.community}`,text:`${x.community}: ${x.name}`,kind:"community",community:x.community})),...C.items.map(x=>({key:`i${x.item}`,text:F(x),kind:"item",items:[x.item]}))]},S=b=>s({user:b}),v=b=>s({community:b}),w=()=>s({});return m`<a
      class="skip"
      href="#panel"
      onClick=${b=>{b.preventDefault(),document.getElementById("panel").focus()}}
      >Skip to the results</a
    >
    <header>
      <h1>LOCA explorer</h1>
      <${be}
        label=${B.exported?"Search users and communities":"Search users, items and communities"}
        placeholder="Search"
        find=${y}
        onChoose=${({user:b,community:C,items:x})=>s({user:b,community:C,items:x})}
      />
      <nav aria-label="Views">
        <button type="button" aria-current=${$?void 0:"page"} onClick=${w}>Map</button>
        ${!B.exported&&m`<button type="button" aria-current=${$?"page":void 0} onClick=${()=>s({items:[]})}>
            Playground
          </button>`}
        ${i.length>1&&!$&&m`<label class="field"
            ><span>Model</span>
            <select value=${c.name} onChange=${b=>s({...n,model:b.target.value})}>
              ${i.map(b=>m`<option key=${b.name} value=${b.name}>${b.name}</option>`)}
            </select></label
          >`}
        <button type="button" class="theme" onClick=${o}>
          ${r?"Light":"Dark"}<span class="unseen"> theme</span>
        </button>
      </nav>
    </header>
    <main class=${$?"playing":"exploring"}>
      <div class="maphold" hidden=${$}>
        <${St}
          points=${d.data}
          error=${d.error}
          communities=${u}
          colours=${_}
          user=${p}
          community=${n.community}
          dark=${r}
          onUser=${S}
          onCommunity=${v}
        />
      </div>
      <div class="panel" id="panel" tabindex="-1" ref=${a}>
        ${$?m`<${Ot}
                source=${B}
                models=${i}
                model=${c}
                items=${n.items}
                onItems=${b=>s({items:b})}
                onModel=${b=>s({items:n.items,model:b})}
                onCommunity=${(b,C)=>s({community:C,model:b})}
              />`:n.user!==null?m`<${Pt}
                  key=${`${h} ${n.user}`}
                  source=${B}
                  model=${c}
                  row=${n.user}
                  user=${p}
                  error=${f.error}
                  communities=${u}
                  users=${l.data?.users}
                  colours=${_}
                  onCommunity=${v}
                  onClose=${w}
                />`:n.community!==null?m`<${Dt}
                    key=${`${h} ${n.community}`}
                    source=${B}
                    model=${c}
                    number=${n.community}
                    points=${d.data}
                    colours=${_}
                    onUser=${S}
                    onClose=${w}
                  />`:l.data?m`<${It}
                      about=${l.data}
                      notes=${c.notes}
                      colours=${_}
                      onCommunity=${v}
                    />`:l.error&&m`<${U} error=${l.error} />`}
      </div>
    </main>
    <${wn} health=${t} model=${c} />`}rt(m`<${kn} />`,document.getElementById("explorer"));})();
