(()=>{var S,We,zt,W,we,ue,qe,ae,Ve,ke,xe,Gt,se=Symbol.for("pv"),me={},_e=[],Wt=/^m(i|n|o|s|text|space)$/,Se=Array.isArray,Ce=_e.slice,j=Object.assign;function V(t){t&&t.parentNode&&t.remove()}function je(t,e,n){var s,i,o,r={},a=arguments.length;for(o in e)o=="key"?s=e[o]:o=="ref"&&typeof t!="function"?i=e[o]:r[o]=e[o];return a>2&&(r.children=a>3?Ce.call(arguments,2):n),ne(t,r,s,i,null)}function ne(t,e,n,s,i){var o={type:t,props:e,key:n,ref:s,__k:null,__:null,__b:0,__e:null,__c:null,constructor:se,__v:i||++We,__i:-1,__u:0};return!i&&S.vnode&&S.vnode(o),o}function he(t){return t.children}function ce(t,e){this.props=t,this.context=e,this.__g=0}function q(t,e){if(e==null)return t.__&&q(t.__,t.__i+1);for(var n;e<t.__k.length;e++)if((n=t.__k[e])&&n.__e)return n.__e;return typeof t.type!="function"||t.props.__P?null:q(t)}function qt(t){var e,n=t.__v,s=n.__e,i=[],o=[],r=t.__P;r&&((e=j({constructor:se},n)).__v=n.__v+1,S.vnode&&S.vnode(e),Ae(r,e,n,t.__n,r.namespaceURI,32&n.__u?[s]:null,i,s||q(n),32&n.__u,o),e.__v=n.__v,e.__.__k[e.__i]=e,Qe(i,e,o),n.__=n.__e=null,e.__e!=s&&Xe(e))}function Xe(t){if((t=t.__)&&t.__c&&!t.props.__P)return t.__e=null,t.__k.some(function(e){return e&&(t.__e=e.__e)}),Xe(t)}function ze(t){(8&t.__g||(t.__g|=8,W.push(t),ue++))&&we==S.debounceRendering||((we=S.debounceRendering)||queueMicrotask)(Je)}function Je(){try{for(var t,e=1;W.length;)W.length>e&&W.sort(qe),t=W.shift(),e=W.length,8&t.__g&&qt(t)}finally{(ue=W.length)&&(we||queueMicrotask)(Je)}}function Ke(t,e,n,s,i,o,r,a,c,_,l){var p,f,u,h,d,$,g=s.__k||_e,y=e.length;for(c=Vt(n,e,g,c,y),p=0;p<y;p++)(u=n.__k[p])!=null&&(f=~u.__i&&g[u.__i]||me,u.__i=p,$=Ae(t,u,f,i,o,r,a,c,_,l),h=u.__e,(f.ref!=u.ref||8&f.__u)&&(f.ref&&Me(f.ref,null,u,f),u.ref&&l.push(u.ref,u.__c||h,u)),d=d||h,4&u.__u?(c=Ye(u,c,t,!f.__v),f.__e&&(f.__e=null)):typeof u.type=="function"&&$!==void 0?c=$:h&&(c=h.nextSibling),u.__u&=-21);return n.__e=d,c}function Vt(t,e,n,s,i){var o,r,a,c,_,l,p,f,u,h=n.length,d=h,$=0,g=0,y=t.__k=Array(i);for(o=0;o<i;o++)(r=e[o])!=null&&typeof r!="boolean"&&typeof r!="function"?(typeof r!="object"||r.constructor===String?r=y[o]=ne(null,r):Se(r)?r=y[o]=ne(he,{children:r}):r.constructor===se&&r.__b?r=y[o]=ne(r.type,r.props,r.key,r.ref,r.__v):y[o]=r,c=o+$,r.__=t,r.__b=t.__b+1,a=null,~(_=r.__i=jt(r,n,c,d))&&(d--,(a=n[_])&&(a.__u|=2)),a&&a.__v?(r.__u|=16,_==c-1?$--:_==c+1?$++:_!=c&&(_>c?$--:$++,g=1)):(~_||(i>h?$--:i<h&&$++),typeof r.type!="function"&&(r.__u|=4))):y[o]=null;if(g){for(l=[],p=[],o=0;o<i;o++)if((r=y[o])&&16&r.__u){for($=0,f=l.length;$<f;)l[u=$+f>>1]<r.__i?$=u+1:f=u;l[$]=r.__i,p[o]=$+1}for($=l.length;o--;)p[o]&&(p[o]==$?$--:y[o].__u|=4)}if(d)for(o=0;o<h;o++)!(a=n[o])||2&a.__u||(a.__e==s&&(s=q(a)),Te(a,a));return s}function Ye(t,e,n,s){var i,o,r,a;if(typeof t.type=="function"){if(t.props.__P)return e;if(i=t.__k)for(o=0;o<i.length;o++)i[o]&&(i[o].__=t,e=Ye(i[o],e,n,!1));return e}for(e&&!e.parentNode&&(e=q(t))&&!e.parentNode&&(e=null),r=t.__e,a=e;a&&a.nodeType==8;)a=a.nextSibling;for(r!=a&&(!s&&n.moveBefore&&r.parentNode?n.moveBefore(r,e):n.insertBefore(r,e||null)),e=r;(e=e&&e.nextSibling)&&e.nodeType==8&&!e.data.startsWith("$s"););return e}function jt(t,e,n,s){var i,o=t.key,r=t.type,a=e[n],c=a&&!(2&a.__u);if(a===null&&o==null||c&&o==a.key&&r==a.type)return n;if(s>(c?1:0)){for(i=n-1;i>=0;i--)if((a=e[i])&&!(2&a.__u)&&o==a.key&&r==a.type)return i;for(i=n+1;i<e.length;i++)if((a=e[i])&&!(2&a.__u)&&o==a.key&&r==a.type)return i}return-1}function Ge(t,e,n){n==null&&(n=""),e[0]=="-"?t.setProperty(e,n):t[e]=n}function ie(t,e,n,s,i){var o,r;if(e=="style")if(typeof n=="string")t.style.cssText=n;else{if(typeof s=="string"&&(t.style.cssText=s=""),s)for(e in s)n&&e in n||Ge(t.style,e);if(n)for(e in n)s&&n[e]==s[e]||Ge(t.style,e,n[e])}else if(e[0]=="o"&&e[1]=="n")typeof n!="function"&&(n=null),typeof s!="function"&&(s=null),(t.__e||(t.__e={}))[e]=n,n&&s||(r=xe[e]||(xe[e]=Xt(e)),(t.__a||(t.__a={}))[e]=ke,o=e!=(e=e.replace(Ve,"$1")),(e=e.slice(2))[0]<"a"&&(e=e.toLowerCase()),n?t.addEventListener(e,r,o):t.removeEventListener(e,r,o));else{if(i=="http://www.w3.org/2000/svg")e=e.replace(/xlink(H|:h)/,"h").replace(/sName$/,"s");else if(e!="width"&&e!="height"&&e!="href"&&e!="list"&&e!="form"&&e!="tabIndex"&&e!="download"&&e!="rowSpan"&&e!="colSpan"&&e!="role"&&e!="popover"&&e in t)try{return void(t[e]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&e[4]!="-"?t.removeAttribute(e):t.setAttribute(e,e=="popover"&&n==1?"":n)}}function Xt(t){return function(e){var n=this.__e;if(n){if(n=n[t],e[ae]==null)e[ae]=ke++;else if(e[ae]<this.__a[t])return;return n(S.event?S.event(e):e)}}}function Ae(t,e,n,s,i,o,r,a,c,_){var l,p,f,u,h,d,$,g,y,v,w,x,b,C,k,te,P,U,I=e.type;if(e.constructor!==se)return null;128&n.__u&&(c=32&n.__u,l=n.__c.__z)&&(e.__u|=c,p=o=[],l.nodeType==8?a=le(l,o):o.push(l),a=o[0]||a),(l=S.__b)&&l(e);e:if(typeof I=="function"){f=r.length;try{if(g=e.props,y=(l=I.prototype)&&l.render,v=(l=I.contextType)&&s[l.__c],w=l?v?v.props.value:l.__:s,(u=n.__c)?(e.__c=u,2&u.__g&&(u.__g|=1)):(y?e.__c=u=new I(g,w):(e.__c=u=new ce(g,w),u.constructor=I,u.render=Kt),v&&v.sub(u),u.state||(u.state={}),u.__n=s,u.__g|=8,u.__h=[],u.__k=[]),y&&(u.__s||(u.__s=u.state),I.getDerivedStateFromProps&&(u.__s==u.state&&(u.__s=j({},u.__s)),j(u.__s,I.getDerivedStateFromProps(g,u.__s)))),h=u.props,d=u.state,u.__v=e,n.__c){if(g!==h&&y&&!I.getDerivedStateFromProps&&u.componentWillReceiveProps&&u.componentWillReceiveProps(g,w),e.__v==n.__v&&!(8&u.__g)||!(4&u.__g)&&u.shouldComponentUpdate&&u.shouldComponentUpdate(g,u.__s,w)===!1){e.__v!=n.__v&&(u.props=g,u.state=u.__s,u.__g&=-9),e.__e=n.__e,e.__k=n.__k,e.__k.some(function(R){R&&(R.__=e)}),_e.push.apply(u.__h,u.__k),u.__k=[],u.__h.length&&r.push(u),a=q(n);break e}u.componentWillUpdate&&u.componentWillUpdate(g,u.__s,w),y&&u.componentDidUpdate&&u.__h.push(function(){u.componentDidUpdate(h,d,$)})}else y&&!I.getDerivedStateFromProps&&u.componentWillMount&&u.componentWillMount(),y&&u.componentDidMount&&u.__h.push(u.componentDidMount);u.context=w,u.props=g,u.__P=t,u.__g&=-5,x=S.__r,b=y?25:0;do u.__g&=-9,x&&x(e),l=u.render(u.props,u.state=u.__s,u.context);while(8&u.__g&&++b<25);y&&(_e.push.apply(u.__h,u.__k),u.__k=[]),u.state=u.__s,u.getChildContext&&(s=j({},s,u.getChildContext())),y&&n.__c&&u.getSnapshotBeforeUpdate&&($=u.getSnapshotBeforeUpdate(h,d)),C=l&&l.type===he&&l.key==null?l.props.children:l,g.__P&&(l=a,i=(t=g.__P).namespaceURI,c=o=null,n.props&&n.props.__P!=t&&(n.__k.some(function(R){R&&Te(R,R)}),n.__k=null),a=n.__k?q(n,0):null),a=Ke(t,Se(C)?C:[C],e,n,s,i,o,r,a,c,_),g.__P&&(e.__e=null,a=l),e.__u&=-161,p&&p.some(V),u.__h.length&&r.push(u),1&u.__g&&(u.__g&=-4)}catch(R){if(r.length=f,e.__v=null,c||o)if(R&&R.then){if(e.__u|=128|c,o){for(~(P=o.indexOf(a||void 0))||(P=o.length);(U=o[P-1])&&U.nodeType==8;)P--;for(;P<o.length;P++)if(U=o[P])if(o[P]=null,k){if(U==te)break}else{if(U.nodeType!=8)break;U.data.startsWith("$s")&&(te=le(k=U))}}if(!k){for(;a&&a.nodeType==8&&a.nextSibling;)a=a.nextSibling;k=a}(l=le(k=e.__c.__z||(e.__c.__z=k)))?(e.__e=k,a=l):e.__e=a,a=a&&a.nextSibling}else o&&o.some(V);else e.__e=n.__e;e.__k||(e.__k=n.__k||[]),R&&R.then||Ze(e),S.__e(R,e,n)}}else a=e.__e=Jt(n.__e,e,n,s,i,o,r,c,_,t);return(l=S.diffed)&&l(e),a}function le(t,e){if(t&&t.nodeType==8&&t.data.startsWith("$s"))for(var n=1;t=t.nextSibling;){if(t.nodeType==8){if(t.data.startsWith("$s"))n++;else if(t.data.startsWith("/$s")&&!--n)return t}e&&e.push(t)}}function Ze(t){t&&(t.__c&&(t.__c.__g|=4),t.__k&&t.__k.some(Ze))}function Qe(t,e,n){for(var s=0;s<n.length;)Me(n[s++],n[s++],n[s++]);S.__c&&S.__c(e,t),t.some(function(i){try{t=i.__h,i.__h=[],t.some(function(o){o.call(i)})}catch(o){S.__e(o,i.__v)}})}function Jt(t,e,n,s,i,o,r,a,c,_){var l,p,f,u,h,d,$,g,y=n.props||me,v=e.props,w=e.type;if(w=="svg"?i="http://www.w3.org/2000/svg":w=="math"?i="http://www.w3.org/1998/Math/MathML":i||(i="http://www.w3.org/1999/xhtml"),o){for(l=0;l<o.length;l++)if((h=o[l])&&(w?h.localName==w:h.nodeType==3)){t=h,o[l]=null;break}}if(!t){if(g=_.ownerDocument||document,!w)return g.createTextNode(v);t=g.createElementNS(i,w,v.is?v:_),a&&(S.__m&&S.__m(e,o),a=!1),o=null}if(w){if(_=w=="template"&&t.content||t,o=w=="textarea"&&v.defaultValue!=null?null:o&&Ce.call(_.childNodes),!a&&o)for(y={},l=0;l<t.attributes.length;l++)y[(h=t.attributes[l]).name]=h.value;for(l in y)h=y[l],l=="dangerouslySetInnerHTML"?f=h:l=="children"||l in v||l=="value"&&"defaultValue"in v||l=="checked"&&"defaultChecked"in v||ie(t,l,null,h,i);for(l in v)h=v[l],l=="children"?u=h:l=="dangerouslySetInnerHTML"?p=h:l=="value"?d=h:l=="checked"?$=h:a&&typeof h!="function"||y[l]===h||ie(t,l,h,y[l],i);p?(a||f&&(p.__html==f.__html||p.__html==t.innerHTML)||(t.innerHTML=p.__html),e.__k=[]):(f&&(t.textContent=""),(w=="foreignObject"||i=="http://www.w3.org/1998/Math/MathML"&&Wt.test(w))&&(i="http://www.w3.org/1999/xhtml"),Ke(_,Se(u)?u:[u],e,n,s,i,o,r,o?o[0]:n.__k&&q(n,0),a,c),o&&o.some(V)),a&&w!="textarea"||(l="value",w=="progress"&&d==null?t.removeAttribute(l):d==null||d===t[l]&&(w!="progress"||d)||ie(t,l,d,y[l],i),l="checked",$!=null&&$!=t[l]&&ie(t,l,$,y[l],i))}else y===v||a&&t.data==v||(t.data=v);return t}function Me(t,e,n,s){try{typeof t=="function"?e?e.__x=t(e)||1:s&&(s=s.__c||s.__e)&&(e=s.__x)&&(s.__x=null,typeof e=="function"?e():t(null)):t.current=e}catch(i){S.__e(i,n)}}function Te(t,e,n){var s,i,o,r;if(S.unmount&&S.unmount(t),!(s=t.ref)||s.current&&s.current!=t.__e||Me(s,null,e,t),s=t.__c){if(s.componentWillUnmount)try{s.componentWillUnmount()}catch(a){S.__e(a,e)}s.__P=s.__n=null}if(s=t.__k)for(r=0;r<s.length;r++)s[r]&&Te(s[r],e,typeof t.type!="function"||n&&!t.props.__P);!n&&(s=t.__c)&&(s=s.__z)&&(i=le(s,o=[]))&&(s==t.__e&&o.some(V),V(i),V(s)),n||V(t.__e),t.__e=t.__c=t.__=null}function Kt(t,e,n){return this.constructor(t,n)}function et(t,e){var n,s,i,o;S.__&&S.__(t,e),e.nodeType==9&&(e=e.documentElement),s=(n=t&&32&t.__u)?null:e.__k,e.__k=ne(he,{children:[t]}),i=[],o=[],Ae(e,e.__k,s||me,me,e.namespaceURI,s?null:e.firstChild?Ce.call(e.childNodes):null,i,s?s.__e:e.firstChild,n,o),Qe(i,e.__k,o),e.__k.props.children=null}S={__e:function(t,e,n,s){for(var i,o,r;e=e.__;)if((i=e.__c)&&!(1&i.__g)){i.__g|=4;try{if((r=(o=i.constructor)&&o.getDerivedStateFromError)&&i.setState(o.getDerivedStateFromError(t)),i.componentDidCatch&&(i.componentDidCatch(t,s||{}),r=1),r&&8&i.__g)return void(i.__g|=2)}catch(a){t=a}}throw ue=0,t}},We=0,zt=function(t){return t!=null&&t.constructor===se},ce.prototype.setState=function(t,e){var n=this.__s;n&&n!=this.state||(n=this.__s=j({},this.state)),typeof t=="function"&&(t=t(j({},n),this.props)),t&&(j(n,t),this.__v&&(e&&this.__k.push(e),ze(this)))},ce.prototype.forceUpdate=function(t){this.__v&&(this.__g|=4,t&&this.__h.push(t),ze(this))},ce.prototype.render=he,W=[],ue=0,qe=function(t,e){return t.__v.__b-e.__v.__b},ae=Symbol(),Ve=/(PointerCapture)$|Capture$/i,ke=0,xe={},Gt=0;var Y,T,Ee,tt,Re=Object.is,fe=0,ut=[],Ie=[],M=S,nt=M.__b,st=M.__r,ot=M.diffed,rt=M.__c,it=M.unmount,at=M.__;function pe(t,e){M.__h&&M.__h(T,t,fe||e),fe=0;var n=T.__H||(T.__H={__:[],__h:[]});return t>=n.__.length&&n.__.push({}),n.__[t]}function E(t){return fe=1,Pe(_t,t)}function Pe(t,e,n){var s=pe(Y++,2);if(s.t=t,!s.__c&&(s.__=[n?n(e):_t(void 0,e),function(o){var r=(s.__N||s.__)[0],a=s.t(r,o);Re(r,a)||(s.__N=[a,s.__[1]],s.__c.setState({}))}],s.__c=T,!T.__f)){T.__f=!0;var i=T.shouldComponentUpdate;T.shouldComponentUpdate=function(o,r,a){var c=this.__H;if(!c)return!0;var _=!1,l=this.props!=o;if(c.__.some(function(f){f.__N&&(_=!0,Re(f.__[0],f.__N[0])||(l=!0))}),i){var p=i.call(this,o,r,a);return _?p||l:p}return!_||l}}return s.__}function A(t,e){var n=pe(Y++,3);!M.__s&&mt(n.__H,e)&&(n.__P=!0,n.__=t,n.u=e,T.__H.__h.push(n))}function L(t){return fe=5,de(function(){return{current:t}},[])}function de(t,e){var n=pe(Y++,7);return mt(n.__H,e)&&(n.__=t(),n.__H=e),n.__}function $e(){var t=pe(Y++,11);if(!t.__){for(var e=T.__v;!e.__m&&e.__;)e=e.__;var n=e.__m||(e.__m=[0,0]);t.__="P"+n[0]+"-"+n[1]++}return t.__}function Yt(){var t;do{for(;t=Ie.shift();)try{oe(t)}catch(n){M.__e(n,{__:(t=t.__P)&&t.__v})}for(;t=ut.shift();){var e=t.__H;if(t.__P&&e)try{e.__h.some(oe),e.__h.some(De),e.__h=[]}catch(n){e.__h=[],M.__e(n,t.__v)}}}while(Ie.length)}M.__b=function(t){T=null,nt&&nt(t)},M.__=function(t,e){t&&e.__k&&e.__k.__m&&(t.__m=e.__k.__m),at&&at(t,e)},M.__r=function(t){st&&st(t),Y=0;var e=(T=t.__c).__H;e&&(Ee==T?T.__h=[]:(e.__h.some(oe),e.__h.some(De),Y=0),e.__h=[],e.__.some(function(n){n.__N&&(n.__=n.__N),n.u=n.__N=void 0})),Ee=T},M.diffed=function(t){ot&&ot(t);var e=t.__c;e&&e.__H&&(e.__H.__h.length&&lt(ut.push(e)),e.__H.__.some(function(n){n.u&&(n.__H=n.u)})),Ee=T=null},M.__c=function(t,e){e.some(function(n){try{n.__h.some(oe),n.__h=n.__h.filter(function(s){return!s.__||De(s)})}catch(s){n.__h=[function(){throw s}]}}),rt&&rt(t,e)},M.unmount=function(t){it&&it(t);var e,n,s=t.__c;s&&s.__H&&(s.__H.__.some(function(i){try{if(i.__P&&i.__c){if(n===void 0){for(n=t.__;n&&(!n.__c||!n.__c.__P);)n=n.__;n=n&&n.__c}i.__P=n,lt(Ie.push(i))}else oe(i)}catch(o){e=o}}),s.__H=void 0,e&&M.__e(e,s.__v))};var ct=typeof requestAnimationFrame=="function";function Zt(t){var e,n=function(){clearTimeout(s),ct&&cancelAnimationFrame(e),setTimeout(t)},s=setTimeout(n,35);ct&&(e=requestAnimationFrame(n))}function lt(t){t!=1&&tt==M.requestAnimationFrame||((tt=M.requestAnimationFrame)||Zt)(Yt)}function oe(t){var e=T,n=t.__c;typeof n=="function"&&(t.__c=void 0,n()),T=e}function De(t){var e=T;t.__c=t.__(),T=e}function mt(t,e){return!t||t.length!=e.length||e.some(function(n,s){return!Re(n,t[s])})}function _t(t,e){return typeof e=="function"?e(t):e}var Be="#1f5fd0 #c9540a #1e8a3c #a566f0 #c81e3a #0f9aa0 #6b3d12 #e0489c #8a8400 #2b2080 #4a97e0 #7a1460".split(" "),ft="#4f86ff #ff9147 #3fb65f #b07cff #ff4d5e #25d5d0 #b0875c #ff9ed2 #e8dc3c #8a94c8 #a5dcff #c8409a".split(" "),pt=["#5a6472","#9aa4b2"];function ye(t){let e=new Map;for(let n of[...t].sort((s,i)=>i.members-s.members)){let s=Be.map(()=>1/0);for(let[i,o]of e)s[o]=Math.min(s[o],Math.hypot(i.x-n.x,i.y-n.y));e.set(n,s.indexOf(Math.max(...s)))}return new Map([...e].map(([n,s])=>[n.community,s]))}var z=t=>t===void 0?`light-dark(${pt.join()})`:`light-dark(${Be[t]}, ${ft[t]})`,ht=t=>[1,3,5].map(e=>parseInt(t.slice(e,e+2),16));function dt(t,e){let n=new Uint8Array(262144);for(let[s,i]of t)n.set(ht((e?ft:Be)[i]),4*s);return n.set(ht(pt[Number(e)]),4*65535),n}var yt=function(t,e,n,s){var i;e[0]=0;for(var o=1;o<e.length;o++){var r=e[o++],a=e[o]?(e[0]|=r?1:2,n[e[o++]]):e[++o];r===3?s[0]=a:r===4?s[1]=Object.assign(s[1]||{},a):r===5?(s[1]=s[1]||{})[e[++o]]=a:r===6?s[1][e[++o]]+=a+"":r?(i=t.apply(a,yt(t,a,n,["",null])),s.push(i),a[0]?e[0]|=2:(e[o-2]=0,e[o]=i)):s.push(a)}return s},$t=new Map;function gt(t){var e=$t.get(this);return e||(e=new Map,$t.set(this,e)),(e=yt(this,e.get(t)||(e.set(t,e=(function(n){for(var s,i,o=1,r="",a="",c=[0],_=function(f){o===1&&(f||(r=r.replace(/^\s*\n\s*|\s*\n\s*$/g,"")))?c.push(0,f,r):o===3&&(f||r)?(c.push(3,f,r),o=2):o===2&&r==="..."&&f?c.push(4,f,0):o===2&&r&&!f?c.push(5,0,!0,r):o>=5&&((r||!f&&o===5)&&(c.push(o,0,r,i),o=6),f&&(c.push(o,f,0,i),o=6)),r=""},l=0;l<n.length;l++){l&&(o===1&&_(),_(l));for(var p=0;p<n[l].length;p++)s=n[l][p],o===1?s==="<"?(_(),c=[c],o=3):r+=s:o===4?r==="--"&&s===">"?(o=1,r=""):r=s+r[0]:a?s===a?a="":r+=s:s==='"'||s==="'"?a=s:s===">"?(_(),o=1):o&&(s==="="?(o=5,i=r,r=""):s==="/"&&(o<5||n[l][p+1]===">")?(_(),o===3&&(c=c[0]),o=c,(c=c[0]).push(2,0,o),o=0):s===" "||s==="	"||s===`
`||s==="\r"?(_(),o=2):r+=s),o===3&&r==="!--"&&(o=4,c=c[0])}return _(),c})(t)),e),arguments,[])).length>1?e:e[0]}var m=gt.bind(je),D=t=>t.toLocaleString("en"),G=(t,e,n=`${e}s`)=>`${D(t)} ${t===1?e:n}`,B=t=>{let e=100*t;return`${e!==0&&Math.abs(e)<1?e.toFixed(1):e.toFixed(0)} %`},Ne=t=>(Math.abs(t)<100?t.toPrecision(3):t.toFixed(0)).replace("-","\u2212"),F=t=>t.title===void 0||t.title===null?String(t.item):t.title;function H(t,e,n=0){let[s,i]=E({busy:!0}),o=L(!1);return A(()=>{let r=!0;i(_=>({..._,busy:!0}));let a=async()=>{try{let _=await t();r&&i({data:_,busy:!1})}catch(_){r&&i({error:_,busy:!1})}},c=o.current&&n?setTimeout(a,n):a();return o.current=!0,()=>{r=!1,clearTimeout(c)}},[e]),s}var O=({error:t})=>m`<p class="failure" role="alert">${t.message}</p>`;function X({colour:t}){return m`<span class="swatch" style=${{"--colour":z(t)}}></span>`}function J({share:t,colour:e}){let n=`${100*Math.min(1,Math.max(0,t))}%`;return m`<span class="bar" aria-hidden="true">
    <span style=${{width:n,"--colour":e}}></span>
  </span>`}function Z({items:t,value:e=i=>Ne(i.score),below:n,marked:s=()=>!1}){return m`<ol class="items">
    ${t.map(i=>m`<li key=${String(i.item)} class=${s(i)?"marked":""}>
        <span class="title" title=${String(i.item)}>${F(i)}</span>
        <span class="value">${e(i)}</span>
        ${n?.(i)}
      </li>`)}
  </ol>`}function ge({label:t,placeholder:e,find:n,onChoose:s,clearLabel:i}){let o=$e(),[r,a]=E(""),[c,_]=E(0),[l,p]=E(!1),f=r.trim(),u=H(async()=>f?{query:f,options:await n(f)}:null,f,150),h=u.data?.options??[],d=l&&f!=="";A(()=>_(0),[u.data]);let $=v=>{a(""),p(!1),s(v)},g=v=>{if(v.key==="ArrowDown"||v.key==="ArrowUp"){v.preventDefault(),p(!0);let w=v.key==="ArrowDown"?1:-1;h.length&&_((c+w+h.length)%h.length)}else v.key==="Enter"?(v.preventDefault(),d&&u.data?.query===f&&h[c]&&$(h[c])):v.key==="Escape"&&p(!1)};A(()=>{document.getElementById(`${o}-${c}`)?.scrollIntoView({block:"nearest"})},[c]);let y=!d||u.busy?"":h.length?G(h.length,"result"):"Nothing found";return m`<div class="search">
    <label for=${o} class=${i?"":"unseen"}>${t}</label>
    <input
      id=${o}
      type="text"
      role="combobox"
      autocomplete="off"
      spellcheck=${!1}
      placeholder=${e}
      aria-autocomplete="list"
      aria-expanded=${String(d&&h.length>0)}
      aria-controls=${`${o}-list`}
      aria-activedescendant=${d&&h.length?`${o}-${c}`:void 0}
      value=${r}
      onInput=${v=>{a(v.target.value),p(!0)}}
      onKeyDown=${g}
      onBlur=${()=>p(!1)}
    />
    <ul id=${`${o}-list`} role="listbox" aria-label=${t} hidden=${!d||!h.length}>
      ${h.map((v,w)=>m`<li
          key=${v.key}
          id=${`${o}-${w}`}
          role="option"
          aria-selected=${String(w===c)}
          onMouseDown=${x=>x.preventDefault()}
          onClick=${()=>$(v)}
        >
          <span>${v.text}</span><small>${v.kind}</small>
        </li>`)}
    </ul>
    ${d&&u.error&&m`<${O} error=${u.error} />`}
    ${d&&!u.busy&&!u.error&&!h.length&&m`<p class="nothing">Nothing found</p>`}
    <span class="unseen" role="status">${y}</span>
  </div>`}function Ue(t,e){let[n,s]=E(!1),o=t.length-e>0&&m`<button type="button" class="quiet" onClick=${()=>s(!n)} aria-expanded=${String(n)}>
      ${n?"Show fewer":`Show all ${D(t.length)}`}
    </button>`;return[n?t:t.slice(0,e),o]}var Qt=`#version 300 es
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
}`,en=`#version 300 es
precision mediump float;
flat in vec4 colour;
flat in float width;
out vec4 shade;
void main() {
  float edge = (0.5 - length(gl_PointCoord - 0.5)) * width;
  float alpha = colour.a * clamp(edge + 0.5, 0.0, 1.0);
  shade = vec4(colour.rgb * alpha, alpha);
}`;var ve=class{constructor(e,{onView:n,onPick:s,onHover:i}){this.canvas=e,this.on={onView:n,onPick:s,onHover:i},this.x=this.y=0,this.zoom=1,this.only=-1,this.pointers=new Map,this.gl=e.getContext("webgl2",{antialias:!1,premultipliedAlpha:!0}),this.listeners=new AbortController,this.gl&&this.prepare(),this.listen(),this.observer=new ResizeObserver(()=>this.resize()),this.observer.observe(e),this.resize()}prepare(){let e=this.gl,n=e.createProgram();for(let[i,o]of[[e.VERTEX_SHADER,Qt],[e.FRAGMENT_SHADER,en]]){let r=e.createShader(i);e.shaderSource(r,o),e.compileShader(r),e.attachShader(n,r)}if(e.bindAttribLocation(n,0,"place"),e.bindAttribLocation(n,1,"community"),e.linkProgram(n),!e.getProgramParameter(n,e.LINK_STATUS)&&!e.isContextLost())throw new Error(e.getProgramInfoLog(n));e.useProgram(n);let s=["centre","scale","size","only","pass"];this.at=Object.fromEntries(s.map(i=>[i,e.getUniformLocation(n,i)])),this.placeBuffer=e.createBuffer(),this.communityBuffer=e.createBuffer(),e.bindTexture(e.TEXTURE_2D,e.createTexture()),e.texParameteri(e.TEXTURE_2D,e.TEXTURE_MIN_FILTER,e.NEAREST),e.texParameteri(e.TEXTURE_2D,e.TEXTURE_MAG_FILTER,e.NEAREST),e.enable(e.BLEND),e.blendFunc(e.ONE,e.ONE_MINUS_SRC_ALPHA),this.upload()}upload(){let e=this.gl;e&&(this.palette&&e.texImage2D(e.TEXTURE_2D,0,e.RGBA8,256,256,0,e.RGBA,e.UNSIGNED_BYTE,this.palette),this.points?.users&&(e.bindBuffer(e.ARRAY_BUFFER,this.placeBuffer),e.bufferData(e.ARRAY_BUFFER,this.points.places,e.STATIC_DRAW),e.enableVertexAttribArray(0),e.vertexAttribPointer(0,2,e.FLOAT,!1,0,0),e.bindBuffer(e.ARRAY_BUFFER,this.communityBuffer),e.bufferData(e.ARRAY_BUFFER,this.points.communities,e.STATIC_DRAW),e.enableVertexAttribArray(1),e.vertexAttribIPointer(1,1,e.UNSIGNED_SHORT,0,0)),this.redraw())}show(e){this.points=e,this.grid=void 0,this.upload()}colour(e){this.palette=e,this.upload()}focusOn(e){this.only=e,this.redraw()}resize(){let e=Math.min(window.devicePixelRatio||1,2);this.width=this.canvas.clientWidth,this.height=this.canvas.clientHeight,this.canvas.width=Math.max(1,Math.round(this.width*e)),this.canvas.height=Math.max(1,Math.round(this.height*e)),this.ratio=e,this.draw()}get unit(){return .47*Math.min(this.width,this.height)*this.zoom}toScreen(e,n){return[this.width/2+(e-this.x)*this.unit,this.height/2-(n-this.y)*this.unit]}toMap(e,n){return[this.x+(e-this.width/2)/this.unit,this.y-(n-this.height/2)/this.unit]}redraw(){this.frame??=requestAnimationFrame(()=>this.draw())}draw(){cancelAnimationFrame(this.frame),this.frame=void 0;let{gl:e,at:n,points:s}=this;if(!(!this.width||!this.height)){if(e&&!e.isContextLost()&&(e.viewport(0,0,this.canvas.width,this.canvas.height),e.clearColor(0,0,0,0),e.clear(e.COLOR_BUFFER_BIT),s?.users&&this.palette)){let i=Math.min(7,Math.max(2.2,260/Math.sqrt(s.users)))*Math.min(2.5,this.zoom**.35);e.uniform2f(n.centre,this.x,this.y),e.uniform2f(n.scale,2*this.unit/this.width,2*this.unit/this.height),e.uniform1f(n.size,i*this.ratio),e.uniform1i(n.only,this.only);for(let o of this.only<0?[1]:[0,1])e.uniform1i(n.pass,o),e.drawArrays(e.POINTS,0,s.users);this.canvas.dataset.drawn=s.users}this.on.onView(this)}}reset(){this.x=this.y=0,this.zoom=1,this.redraw()}panBy(e,n){this.x=Math.min(1.5,Math.max(-1.5,this.x-e/this.unit)),this.y=Math.min(1.5,Math.max(-1.5,this.y+n/this.unit)),this.redraw()}zoomBy(e,n=this.width/2,s=this.height/2){let[i,o]=this.toMap(n,s);this.zoom=Math.min(400,Math.max(.5,this.zoom*e));let[r,a]=this.toMap(n,s);this.x+=i-r,this.y+=o-a,this.redraw()}goTo(e,n){let[s,i]=this.toScreen(e,n);(s<20||i<20||s>this.width-20||i>this.height-20)&&([this.x,this.y]=[e,n]),this.redraw()}makeGrid(){let{places:e,users:n}=this.points,s=a=>256*Q(e[2*a+1])+Q(e[2*a]),i=new Uint32Array(256*256+1);for(let a=0;a<n;a++)i[s(a)+1]++;for(let a=0;a<256*256;a++)i[a+1]+=i[a];let o=new Uint32Array(n),r=i.slice();for(let a=0;a<n;a++)o[r[s(a)]++]=a;return{starts:i,order:o}}nearest(e,n,s=10){if(!this.points?.users)return-1;this.grid??=this.makeGrid();let{places:i,communities:o}=this.points,{starts:r,order:a}=this.grid,[c,_]=this.toMap(e,n),l=s/this.unit,[p,f]=[-1,l*l];for(let u=Q(_-l);u<=Q(_+l);u++){let h=r[256*u+Q(c-l)],d=r[256*u+Q(c+l)+1];for(let $=h;$<d;$++){let g=a[$];if(this.only>=0&&o[g]!==this.only)continue;let y=(i[2*g]-c)**2+(i[2*g+1]-_)**2;y<f&&([p,f]=[g,y])}}return p}listen(){let{canvas:e,pointers:n}=this,s=(c,_,l={})=>e.addEventListener(c,_,{signal:this.listeners.signal,...l}),i=c=>{let _=e.getBoundingClientRect();return[c.clientX-_.left,c.clientY-_.top]},o=()=>{let[[c,_],[l,p]]=n.values();return{length:Math.hypot(c-l,_-p),middle:[(c+l)/2,(_+p)/2]}},r=0;s("pointerdown",c=>{c.button||(e.setPointerCapture(c.pointerId),n.size||(r=0),n.set(c.pointerId,i(c)))}),s("pointermove",c=>{let[_,l]=i(c),p=n.get(c.pointerId);if(!p)return this.on.onHover(this.nearest(_,l));if(n.size===2){let f=o();n.set(c.pointerId,[_,l]);let u=o();this.panBy(u.middle[0]-f.middle[0],u.middle[1]-f.middle[1]),this.zoomBy(u.length/Math.max(f.length,1),...u.middle),r=1/0}else n.set(c.pointerId,[_,l]),r+=Math.hypot(_-p[0],l-p[1]),r>4&&this.panBy(_-p[0],l-p[1])});let a=c=>{if(!n.delete(c.pointerId)||c.type!=="pointerup"||r>4)return;let _=this.nearest(...i(c),c.pointerType==="mouse"?10:18);_>=0&&this.on.onPick(_)};s("pointerup",a),s("pointercancel",a),s("pointerleave",()=>this.on.onHover(-1)),s("wheel",c=>{c.preventDefault();let _=c.deltaMode?30*c.deltaY:c.deltaY;this.zoomBy(Math.exp(Math.max(-1,Math.min(1,-_/300))),...i(c))},{passive:!1}),s("keydown",c=>{if(c.ctrlKey||c.metaKey||c.altKey)return;let _={ArrowLeft:()=>this.panBy(40,0),ArrowRight:()=>this.panBy(-40,0),ArrowUp:()=>this.panBy(0,40),ArrowDown:()=>this.panBy(0,-40),"+":()=>this.zoomBy(1.4),"=":()=>this.zoomBy(1.4),"-":()=>this.zoomBy(1/1.4),0:()=>this.reset()};_[c.key]&&(c.preventDefault(),_[c.key]())}),s("webglcontextlost",c=>c.preventDefault()),s("webglcontextrestored",()=>this.prepare())}close(){cancelAnimationFrame(this.frame),this.listeners.abort(),this.observer.disconnect()}},Q=t=>Math.max(0,Math.min(255,Math.floor((t+1)/2*256)));var Oe=(t,e,n,s)=>{let[i,o]=e.toScreen(n,s);return t.style.transform=`translate(${i}px, ${o}px)`,[i,o]};function vt({points:t,error:e,communities:n,colours:s,user:i,community:o,dark:r,onUser:a,onCommunity:c}){let _=L(null),[l,p]=E(null),f=L(new Map),u=L(null),h=L(null),[d,$]=E(!0),g=L({});g.current={points:t,communities:n,user:i,community:o,onUser:a};let y=x=>{let b=[],C=P=>P.community===g.current.community?1/0:P.members;for(let P of[...g.current.communities].sort((U,I)=>C(I)-C(U))){let U=f.current.get(P.community);if(!U)continue;let[I,R]=Oe(U,x,P.x,P.y),Ot=b.some(([Ft,Ht])=>Math.abs(Ft-I)<28&&Math.abs(Ht-R)<26),Lt=I<0||R<0||I>x.width||R>x.height;U.hidden=Ot||Lt,U.hidden||b.push([I,R])}let k=g.current.user,te=Number.isFinite(k?.x);u.current.hidden=!te,te&&Oe(u.current,x,k.x,k.y),h.current.hidden=!0};A(()=>{let x,b=setTimeout(()=>{x=new ve(_.current,{onView:y,onPick:C=>g.current.onUser(g.current.points.rows[C]),onHover:C=>{_.current.classList.toggle("pointing",C>=0),h.current.hidden=C<0;let{places:k}=g.current.points??{};C>=0&&Oe(h.current,x,k[2*C],k[2*C+1])}}),p(x)});return()=>{clearTimeout(b),x?.close()}},[]),A(()=>l?.colour(dt(s,r)),[l,s,r]),A(()=>l?.show(t??{users:0}),[l,t]),A(()=>l?.focusOn(o??-1),[l,o]),A(()=>Number.isFinite(i?.x)?l?.goTo(i.x,i.y):l?.redraw(),[l,i?.row]),A(()=>l?.redraw(),[l,n,d]);let v=t?`Map of ${G(t.users,"user")}, ${G(n.length,"community","communities")}`:"Map of users",w=d?n:[];return m`<section class="map" aria-label="Map">
    <canvas
      ref=${_}
      tabindex="0"
      role="application"
      aria-label=${`${v}. Arrow keys move it, plus and minus zoom, 0 shows all. Search finds users by name.`}
    ></canvas>
    <div class="marks">
      <span class="ring hovered" ref=${h} hidden></span>
      <span class="ring" ref=${u} hidden></span>
      ${w.map(x=>m`<button
          type="button"
          key=${x.community}
          ref=${b=>b?f.current.set(x.community,b):f.current.delete(x.community)}
          tabindex="-1"
          class=${x.community===o?"centre chosen":"centre"}
          style=${{"--colour":z(s.get(x.community))}}
          aria-label=${`Community ${x.community}: ${x.name}`}
          onClick=${()=>c(x.community)}
        >
          ${x.community}<span class="name" aria-hidden="true">${x.name}</span>
        </button>`)}
    </div>
    <div class="tools" role="group" aria-label="Map controls">
      <button type="button" aria-label="Zoom in" onClick=${()=>l?.zoomBy(1.6)}>+</button>
      <button type="button" aria-label="Zoom out" onClick=${()=>l?.zoomBy(1/1.6)}>−</button>
      <button type="button" onClick=${()=>l?.reset()}>Reset</button>
      ${n.length>0&&m`<button type="button" aria-pressed=${String(d)} onClick=${()=>$(!d)}>Centres</button>`}
    </div>
    ${l&&!l.gl&&m`<p class="failure">This browser has no WebGL2: the map is not drawn, all else works.</p>`}
    ${e&&m`<${O} error=${e} />`}
    ${!t&&!e&&m`<p class="waiting">The map is on its way …</p>`}
  </section>`}var xt=50,tn=t=>Math.min(xt,Number(/^half-life ([\d.]+) positions/.exec(t??"")?.[1]??0));function bt({label:t,shown:e,value:n,onInput:s,...i}){let o=$e();return m`<div class="slider">
    <label for=${o}>${t}</label>
    <output for=${o}>${e}</output>
    <input
      id=${o}
      type="range"
      value=${n}
      aria-valuetext=${e}
      onInput=${r=>s(Number(r.target.value))}
      ...${i}
    />
  </div>`}function nn({model:t,recency:e,share:n,onRecency:s,onShare:i}){let o=t.recency===null?"off":t.recency.replace("half-life ",""),r=e===null?`${o} (the model\u2019s)`:e?G(e,"position"):"off",a=n??t.alpha;return m`<fieldset class="controls">
    <legend>What if</legend>
    <${bt}
      label="Recency half-life"
      shown=${r}
      min="0"
      max=${xt}
      step="1"
      value=${e??tn(t.recency)}
      onInput=${s}
    />
    ${t.communities>0&&t.alpha!==null&&m`<${bt}
      label="Global share"
      shown=${n===null?`${B(a)} (the model\u2019s)`:B(a)}
      min="0"
      max="100"
      step="5"
      value=${Math.round(100*a)}
      onInput=${c=>i(c/100)}
    />`}
    <button
      type="button"
      class="quiet"
      disabled=${e===null&&n===null}
      onClick=${()=>{s(null),i(null)}}
    >
      Back to the model’s
    </button>
  </fieldset>`}var wt=3;function sn({item:t}){let e=t.because.filter(r=>r.share>0),n=e.slice(0,wt),s=t.because.filter(r=>r.share<=-.05).slice(-2),i=e.slice(wt).reduce((r,a)=>r+a.share,0),o=r=>m`<li key=${String(r.item)}>${F(r)} <b>${B(r.share)}</b></li>`;return!n.length&&!t.everyone?m`<p class="because">no item of the history speaks for it</p>`:m`<ul class="because" aria-label="Because of">
    ${n.map(o)}
    ${i>=.005&&m`<li>${D(e.length-n.length)} more <b>${B(i)}</b></li>`}
    ${t.everyone&&m`<li>popular with everyone <b>${B(t.everyone.share)}</b></li>`}
    ${s.map(r=>m`<li key=${String(r.item)}>in spite of ${F(r)} <b>${B(r.share)}</b></li>`)}
  </ul>`}var Le=(t,e=()=>"")=>t.map((n,s)=>m`${s>0&&" \xB7 "}${F(n)}${e(n)}`);function Fe({items:t,known:e,raised:n}){let s=(e??[]).filter(i=>i.lift>1);return m`<dl class="says">
    <dt>says</dt>
    <dd>${Le(t)}</dd>
    ${n?.length>0&&m`<dt>raises</dt><dd>${Le(n)}</dd>`}
    ${s.length>0&&m`<dt>known for</dt>
      <dd>${Le(s,i=>` (${i.lift.toFixed(1)}\xD7)`)}</dd>`}
  </dl>`}function kt({inside:t,colours:e,onCommunity:n,users:s}){let[i,o]=Ue(t.communities,5);return t.communities.length?m`<ul class="sources">
      ${i.map(r=>{let a=e.get(r.community),c=[`${D(r.members)}${s?` of ${D(s)} users`:" members"}`];return r.membership!==void 0&&c.unshift(`membership ${B(r.membership)}`),m`<li key=${r.community}>
          <div class="source">
            <${X} colour=${a} />
            <button type="button" class="link" onClick=${()=>n(r.community)}>
              Community ${r.community}${r.name?`: ${r.name}`:` around ${r.anchor}`}
            </button>
            <b>${B(r.weight)}</b>
          </div>
          <${J} share=${r.weight} colour=${z(a)} />
          <p class="facts">${c.join(" \xB7 ")}</p>
          <details><summary>What it says</summary>
            <${Fe} items=${r.items} known=${r.known_for} raised=${r.raises} />
          </details>
        </li>`})}
      <li>
        <div class="source"><${X} /> <span>The global model</span> <b>${B(t.global.weight)}</b></div>
        <${J} share=${t.global.weight} colour=${z()} />
        <details><summary>What it says</summary><${Fe} items=${t.global.items} /></details>
      </li>
    </ul>
    ${o}`:m`<p>No community covers this history: the global model answers alone.</p>`}function on({parts:t,...e}){return m`<ul class="sources">
    ${t.map(n=>m`<li key=${n.part}>
        <div class="source"><span>${n.part}</span> <b>${B(n.weight)}</b></div>
        <${J} share=${n.weight} />
        <details><summary>What it says</summary><${Fe} items=${n.items} /></details>
        ${n.inside?.communities&&m`<${kt} inside=${n.inside} ...${e} />`}
      </li>`)}
  </ul>`}function rn({history:t,counts:e}){let n=t.map((r,a)=>({...r,counts:e?.[a]??1})).reverse(),[s,i]=Ue(n,15),o=Math.max(...n.map(r=>r.counts),1e-9);return n.length?m`<ol class="history">
      ${s.map(r=>m`<li key=${String(r.item)}>
          <span class="title" title=${String(r.item)}>${F(r)}</span>
          <${J} share=${r.counts/o} />
          <span class="value">${r.counts.toFixed(2)}</span>
        </li>`)}
    </ol>
    ${i}`:m`<p>No history.</p>`}function be({source:t,model:e,who:n,row:s,colours:i,users:o,onCommunity:r,onHistory:a}){let[c,_]=E(null),[l,p]=E(null),f={model:e.name,n:10,...n};c!==null&&(f.recency=c?String(c):"none"),l!==null&&(f.global_share=l);let h=H(async()=>{let y=await t.explain(s,f);return a?.(y.history),y},JSON.stringify([f,e.fingerprint]),120),d=h.data,$=h.busy||h.error?"":`${D(d.items.length)} items listed`,g={colours:i,users:o,onCommunity:r};return m`<div class="answer" aria-busy=${String(h.busy)}>
    ${!t.exported&&m`<${nn}
      model=${e}
      recency=${c}
      share=${l}
      onRecency=${_}
      onShare=${p}
    />`}
    <p class="unseen" role="status">${$}</p>
    ${h.error&&m`<${O} error=${h.error} />`}
    ${!d&&h.busy&&m`<p class="waiting">The list is on its way …</p>`}
    ${d&&m`<div class="columns">
      <section class="list">
        <h3>Recommended</h3>
        ${!d.items.length&&m`<p>Nothing is left to recommend.</p>`}
        <${Z}
          items=${d.items}
          value=${y=>m`<span class="unseen">score </span>${Ne(y.score)}`}
          below=${y=>m`<${sn} item=${y} />`}
        />
        <p class="facts">
          ${d.is_exact?"Shares are of all that speaks for an item; for and against add up to its score.":"Shares by leave-one-out: how far the score falls without the item."}
        </p>
      </section>
      ${d.communities&&m`<section><h3>Who answers</h3><${kt} inside=${d} ...${g} /></section>`}
      ${d.parts&&m`<section><h3>Who answers</h3><${on} parts=${d.parts} ...${g} /></section>`}
      <section>
        <h3>History, newest first</h3>
        <p class="facts">The figure is what an item counts.</p>
        <${rn} history=${d.history} counts=${d.counts} />
      </section>
    </div>`}
  </div>`}var Ct=!1;addEventListener("hashchange",()=>{Ct=!0});function At({children:t,onClose:e}){let n=L(null);return A(()=>{Ct&&n.current.focus({preventScroll:window.innerWidth>900})},[]),m`<div class="heading">
    <h2 ref=${n} tabindex="-1">${t}</h2>
    <button type="button" class="quiet" onClick=${e}>All communities</button>
  </div>`}var St={mixture:"found by likelihood",kernel:"around anchors",random:"drawn at random, as a control"};function Mt({about:t,colours:e,onCommunity:n}){if(!t.communities.length)return m`<h2>No communities</h2>
      <p>This model has no communities: all points have one colour. Click a point or search for a user.</p>`;let s=new Set(t.communities.map(o=>o.mixture)),i=Math.max(...t.communities.map(o=>o.members),1);return m`<h2>Communities</h2>
    <p class="facts">
      ${G(t.users,"user")}, ${D(t.communities.length)} communities
      ${St[t.kind]?` ${St[t.kind]}`:""}${t.alpha===null?"":`; the global model has ${B(t.alpha)} of an answer`}
    </p>
    ${[...s].map(o=>m`${s.size>1&&m`<h3>Mixture ${o}</h3>`}
        <ul class="communities">
          ${t.communities.filter(r=>r.mixture===o).map(r=>m`<li key=${r.community}>
                <button type="button" onClick=${()=>n(r.community)}>
                  <${X} colour=${e.get(r.community)} />
                  <span class="number">${r.community}</span>
                  <span class="title">${r.name}</span>
                  <span class="value">${D(r.members)}<span class="unseen"> users</span></span>
                  <${J} share=${r.members/i} colour=${z(e.get(r.community))} />
                </button>
              </li>`)}
        </ul>`)}`}function Tt({source:t,model:e,number:n,colours:s,onUser:i,onClose:o}){let{data:r,error:a}=H(()=>t.community(e.name,n),JSON.stringify([e.name,e.fingerprint,n])),c=p=>new Set((p??[]).map(f=>f.item)),[_,l]=[c(r?.items),c(r?.global)];return m`<${At} onClose=${o}>
      <${X} colour=${s.get(n)} /> Community ${n}
    <//>
    ${a&&m`<${O} error=${a} />`}
    ${!r&&!a&&m`<p class="waiting">The community is on its way …</p>`}
    ${r&&m`<p class="lead">${r.name}</p>
      <p class="facts">
        ${D(r.members)} of ${G(r.users,"user")} (${B(r.members/r.users)})
      </p>
      <div class="columns">
        <section>
          <h3>Taken beyond others</h3>
          <p class="facts">How many times as often as all users.</p>
          <${Z} items=${r.known_for.filter(p=>p.lift>1)} value=${p=>`${p.lift.toFixed(1)}\xD7`} />
        </section>
        <section>
          <h3>Typical users</h3>
          <ul class="typical">
            ${r.typical_users.map(p=>m`<li key=${p.row}>
                <button type="button" class="link" onClick=${()=>i(p.row)}>User ${p.user}</button>
                <span class="value">membership ${B(p.membership)}</span>
              </li>`)}
          </ul>
        </section>
      </div>
      <p class="facts">
        Both lists are for the mean history of the members. Bold: only one of the two lists has it.
      </p>
      <div class="columns pair">
        <section>
          <h3>Its own list</h3>
          <${Z} items=${r.items} marked=${p=>!l.has(p.item)} />
        </section>
        <section>
          <h3>The global list</h3>
          <${Z} items=${r.global} marked=${p=>!_.has(p.item)} />
        </section>
      </div>`}
    <p class="unseen" role="status">${r?`Community ${n}: ${r.name}`:""}</p>`}function Et({source:t,model:e,row:n,user:s,error:i,communities:o,colours:r,onCommunity:a,onClose:c}){let _=o.find(l=>l.community===s?.community);return m`<${At} onClose=${c}>User ${s?s.user:"\u2026"}<//>
    ${i&&m`<${O} error=${i} />`}
    ${_&&m`<p class="facts home">
      <${X} colour=${r.get(_.community)} />
      <button type="button" class="link" onClick=${()=>a(_.community)}>
        Community ${_.community}: ${_.name}
      </button>
    </p>`}
    ${s&&s.x===null&&m`<p class="facts">This user is not on the map.</p>`}
    ${s&&m`<${be}
      source=${t}
      model=${e}
      who=${{user:s.user}}
      row=${n}
      colours=${r}
      onCommunity=${a}
    />`}`}var He=new Map;function Rt({label:t,models:e,name:n,without:s,onModel:i}){return m`<label class="field">
    <span>${t}</span>
    <select value=${n} onChange=${o=>i(o.target.value)}>
      ${s&&m`<option value="">none</option>`}
      ${e.map(o=>m`<option key=${o.name} value=${o.name}>${o.name} (${o.label})</option>`)}
    </select>
  </label>`}function an({source:t,model:e,items:n,named:s,onCommunity:i,onHistory:o}){let r=H(()=>t.communities(e.name),JSON.stringify([e.name,e.fingerprint])),a=ye(r.data?.communities??[]);return m`<section class="model" aria-label=${`Answer of ${e.name}`}>
    ${s&&m`<h3>${e.name}</h3>`}
    <${be}
      source=${t}
      model=${e}
      who=${{items:n}}
      colours=${a}
      users=${r.data?.users}
      onCommunity=${c=>i(e.name,c)}
      onHistory=${o}
    />
  </section>`}function It({source:t,models:e,model:n,items:s,onItems:i,onModel:o,onCommunity:r}){let[a,c]=E(""),_=e.find(h=>h.name===a),[,l]=Pe(h=>h+1,0);A(()=>window.scrollTo(0,0),[]);let p=async h=>(await t.search(n.name,h,"items")).items.map($=>({key:String($.item),text:F($),kind:String($.item),item:$})),f=h=>{for(let d of h)He.set(d.item,F(d));l()},u=h=>i(s.filter((d,$)=>$!==h));return m`<div class="playground">
    <h2>Playground</h2>
    <p class="facts">Name what somebody took, oldest first, and see what is recommended and which communities answer.</p>
    <${ge}
      label="Add an item by its title or id"
      clearLabel
      find=${p}
      onChoose=${h=>{f([h.item]),i([...s.filter(d=>d!==h.item.item),h.item.item])}}
    />
    ${s.length>0?m`<ol class="chosen" aria-label="History, oldest first">
          ${s.map((h,d)=>m`<li key=${String(h)}>
              <span>${He.get(h)??String(h)}</span>
              <button type="button" aria-label=${`Remove ${He.get(h)??h}`} onClick=${()=>u(d)}>
                ×
              </button>
            </li>`)}
          <li><button type="button" class="quiet" onClick=${()=>i([])}>Clear</button></li>
        </ol>`:m`<p class="waiting">No item yet.</p>`}
    ${e.length>1&&m`<div class="models">
      <${Rt} label="Model" models=${e} name=${n.name} onModel=${o} />
      <${Rt} label="Beside it" models=${e} name=${a} without onModel=${c} />
    </div>`}
    ${s.length>0&&m`<div class=${_?"beside two":"beside"}>
      ${[n,_].filter(Boolean).map((h,d)=>m`<${an}
          key=${`${d} ${h.name}`}
          source=${t}
          model=${h}
          items=${s}
          named=${!!_}
          onCommunity=${r}
          onHistory=${d?void 0:f}
        />`)}
    </div>`}
  </div>`}var K=class extends Error{constructor(e,n,s){super(s?`${n}: ${s}`:n),this.status=e}},cn="LOCAMAP1";function Dt(t){let e=new Uint8Array(t);if(String.fromCharCode(...e.subarray(0,8))!==cn)throw new K(0,"The map","not a LOCA map");let[n]=new Uint32Array(t,8,2);return{users:n,places:new Float32Array(t,16,2*n),rows:new Uint32Array(t,16+8*n,n),communities:new Uint16Array(t,16+12*n,n)}}async function Pt(t,e){let n={},s=sessionStorage.getItem("loca-token");s&&(n.Authorization=`Bearer ${s}`),e&&(n["Content-Type"]="application/json");let i;try{i=await fetch(t,{method:e?"POST":"GET",headers:n,body:e&&JSON.stringify(e)})}catch(r){throw new K(0,"The service does not answer",r.message)}if(i.ok)return i;let o=await i.json().catch(()=>({}));throw new K(i.status,o.title??`Status ${i.status}`,o.detail)}var ee=async(t,e)=>(await Pt(t,e)).json(),re=t=>new URLSearchParams(t).toString(),ln={exported:!1,models:()=>ee("v1/models"),communities:t=>ee(`v1/communities?${re({model:t})}`),community:(t,e)=>ee(`v1/communities/${e}?${re({model:t,n:10})}`),map:async t=>Dt(await(await Pt(`v1/map?${re({model:t})}`)).arrayBuffer()),user:(t,e)=>ee(`v1/users/${e}?${re({model:t})}`),search:(t,e,n)=>ee(`v1/search?${re({model:t,q:e,what:n,n:12})}`),explain:(t,e)=>ee("v1/explain",e)};function un(t){let e=(n,s)=>{let i=t[n]?.[s];if(!i)throw new K(404,"Not in this file",`the exported page has no ${n} ${s}`);return i};return{exported:!0,models:async()=>t.models,communities:async()=>t.communities,community:async(n,s)=>e("community",s),map:async()=>Dt(Uint8Array.from(atob(t.map),n=>n.charCodeAt(0)).buffer),user:async(n,s)=>{if(!t.users[s]){let i=Object.keys(t.users).length.toLocaleString("en");throw new K(404,"Not in this file",`the exported page has ${i} users, and not this one`)}return t.users[s].user},search:async(n,s)=>({users:Object.values(t.users).map(o=>({user:o.user.user,row:o.user.row})).filter(o=>String(o.user).includes(s)).slice(0,12),items:[]}),explain:async n=>e("users",n).explain}}function Bt(){let t=document.getElementById("loca-data");return t?un(JSON.parse(t.textContent)):ln}var mn=5,N=Bt();function Nt(){let t=new URLSearchParams(location.hash.slice(1)),e=i=>/^\d+$/.test(t.get(i)??"")?Number(t.get(i)):null,n=null;try{n=t.has("items")?JSON.parse(t.get("items")||"[]"):null}catch{n=[]}let s=i=>typeof i=="string"||typeof i=="number";return n!==null&&(n=Array.isArray(n)?n.filter(s):[]),{model:t.get("model"),user:e("user"),community:e("community"),items:n}}function _n(){let[t,e]=E(Nt);return A(()=>{let s=()=>e(Nt());return addEventListener("hashchange",s),()=>removeEventListener("hashchange",s)},[]),[t,s=>{let i={model:t.model,...s},o=Object.entries(i).filter(([,r])=>r!=null);location.hash=new URLSearchParams(o.map(([r,a])=>[r,r==="items"?JSON.stringify(a):a]))}]}function Ut(t){try{return t(localStorage)}catch{return null}}function hn(){let t=de(()=>matchMedia("(prefers-color-scheme: dark)"),[]),[e,n]=E(()=>Ut(a=>a.getItem("loca-theme"))),[s,i]=E(t.matches);A(()=>{let a=()=>i(t.matches);return t.addEventListener("change",a),()=>t.removeEventListener("change",a)},[]);let o=e?e==="dark":s;return document.documentElement.dataset.theme=o?"dark":"light",[o,()=>{let a=o?"light":"dark";Ut(c=>c.setItem("loca-theme",a)),n(a)}]}function fn(){let[t,e]=E({}),n=async()=>{try{let s=await N.models();e({data:s})}catch(s){e(i=>({data:i.data,error:s}))}};return A(()=>{if(n(),N.exported)return;let s=setInterval(()=>document.visibilityState==="visible"&&n(),1e3*mn);return()=>clearInterval(s)},[]),[t,n]}function pn({error:t,onToken:e}){return m`<main class="token">
    <h2>A token is needed</h2>
    <${O} error=${t} />
    <form onSubmit=${s=>{s.preventDefault(),sessionStorage.setItem("loca-token",s.target.elements.token.value.trim()),e()}}>
      <label class="field"><span>Token</span><input name="token" type="password" autocomplete="off" required /></label>
      <button type="submit">Go on</button>
    </form>
    <p class="facts">It stays in this tab and is forgotten when the tab closes.</p>
  </main>`}function dn({health:t,model:e}){let{data:n,error:s}=t,i=o=>o==null?"\u2013":`${o.toFixed(1)} ms`;return m`<footer>
    ${e&&m`<dl>
      <div><dt>model</dt><dd>${e.name} (${e.label})</dd></div>
      <div><dt>fingerprint</dt><dd><code>${e.fingerprint}</code></dd></div>
      <div><dt>users</dt><dd>${D(e.users)}</dd></div>
      <div><dt>items</dt><dd>${D(e.items)}</dd></div>
      ${!N.exported&&m`<div><dt>requests</dt><dd>${D(n.requests)}</dd></div>
        <div><dt>p50</dt><dd>${i(n.p50_ms)}</dd></div>
        <div><dt>p99</dt><dd>${i(n.p99_ms)}</dd></div>
        <div><dt>waiting</dt><dd>${D(n.queue)}</dd></div>`}
      <div><dt>loca</dt><dd>${n.version}</dd></div>
      ${!N.exported&&m`<div><a href="docs">HTTP interface</a></div>`}
    </dl>`}
    ${N.exported&&m`<p>An exported page: it has no service behind it, so there are no sliders and no playground.</p>`}
    ${e?.error&&m`<p class="failure">A newer version was not loaded: ${e.error}</p>`}
    ${s&&m`<${O} error=${s} />`}
  </footer>`}function $n(t,e){let n=e.toLowerCase();return t.filter(s=>String(s.community)===n||s.name.toLowerCase().includes(n)).slice(0,6)}function yn(){let[t,e]=fn(),[n,s]=_n(),[i,o]=hn(),r=L(null),a=t.data?.models??[],c=a.find(b=>b.name===n.model)??a.find(b=>b.name===t.data.default),_=JSON.stringify([c?.name,c?.fingerprint]),l=H(async()=>c?N.communities(c.name):null,_),p=H(async()=>c?N.map(c.name):null,_),f=H(async()=>c&&n.user!==null?N.user(c.name,n.user):null,JSON.stringify([_,n.user])),u=l.data?.communities??[],h=de(()=>ye(u),[l.data]),d=f.data?.row===n.user&&f.data.model===c.name?f.data:null,$=n.items!==null&&!N.exported,g=n.user!==null?`User ${d?.user??n.user}`:n.community!==null?`Community ${n.community}`:"";if(A(()=>{document.title=[$?"Playground":g,"LOCA explorer"].filter(Boolean).join(" \u2013 ")},[$,g]),A(()=>r.current?.scrollTo(0,0),[n]),t.error?.status===401){let b=()=>sessionStorage.getItem("loca-token")?location.reload():e();return m`<header><h1>LOCA explorer</h1></header><${pn} error=${t.error} onToken=${b} />`}if(!c)return m`<header><h1>LOCA explorer</h1></header>
      <main>${t.error?m`<${O} error=${t.error} />`:m`<p class="waiting">Loading …</p>`}</main>`;let y=async b=>{let C=await N.search(c.name,b,"all");return[...C.users.map(k=>({key:`u${k.row}`,text:String(k.user),kind:"user",user:k.row})),...$n(u,b).map(k=>({key:`c${k.community}`,text:`${k.community}: ${k.name}`,kind:"community",community:k.community})),...C.items.map(k=>({key:`i${k.item}`,text:F(k),kind:"item",items:[k.item]}))]},v=b=>s({user:b}),w=b=>s({community:b}),x=()=>s({});return m`<a class="skip" href="#panel" onClick=${b=>{b.preventDefault(),document.getElementById("panel").focus()}}>Skip to the results</a>
    <header>
      <h1>LOCA explorer</h1>
      <${ge}
        label=${N.exported?"Search users and communities":"Search users, items and communities"}
        placeholder="Search"
        find=${y}
        onChoose=${({user:b,community:C,items:k})=>s({user:b,community:C,items:k})}
      />
      <nav aria-label="Views">
        <button type="button" aria-current=${$?void 0:"page"} onClick=${x}>Map</button>
        ${!N.exported&&m`<button type="button" aria-current=${$?"page":void 0} onClick=${()=>s({items:[]})}>
          Playground
        </button>`}
        ${a.length>1&&!$&&m`<label class="field"
          ><span>Model</span>
          <select value=${c.name} onChange=${b=>s({...n,model:b.target.value})}>
            ${a.map(b=>m`<option key=${b.name} value=${b.name}>${b.name}</option>`)}
          </select></label
        >`}
        <button type="button" class="theme" onClick=${o}>${i?"Light":"Dark"}<span class="unseen"> theme</span></button>
      </nav>
    </header>
    <main class=${$?"playing":"exploring"}>
      <div class="maphold" hidden=${$}>
        <${vt}
          points=${p.data}
          error=${p.error}
          communities=${u}
          colours=${h}
          user=${d}
          community=${n.community}
          dark=${i}
          onUser=${v}
          onCommunity=${w}
        />
      </div>
      <div class="panel" id="panel" tabindex="-1" ref=${r}>
        ${$?m`<${It}
              source=${N}
              models=${a}
              model=${c}
              items=${n.items}
              onItems=${b=>s({items:b})}
              onModel=${b=>s({items:n.items,model:b})}
              onCommunity=${(b,C)=>s({community:C,model:b})}
            />`:n.user!==null?m`<${Et}
                key=${`${_} ${n.user}`}
                source=${N}
                model=${c}
                row=${n.user}
                user=${d}
                error=${f.error}
                communities=${u}
                colours=${h}
                onCommunity=${w}
                onClose=${x}
              />`:n.community!==null?m`<${Tt}
                  key=${`${_} ${n.community}`}
                  source=${N}
                  model=${c}
                  number=${n.community}
                  colours=${h}
                  onUser=${v}
                  onClose=${x}
                />`:l.data?m`<${Mt} about=${l.data} colours=${h} onCommunity=${w} />`:l.error&&m`<${O} error=${l.error} />`}
      </div>
    </main>
    <${dn} health=${t} model=${c} />`}et(m`<${yn} />`,document.getElementById("explorer"));})();
